TOOLLDLIBS_tgt-probe := -liscsi
