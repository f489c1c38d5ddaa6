TOOLLIBS_tgt-cachebench := all
