TOOLLIBS_tgt-cachesim := all
