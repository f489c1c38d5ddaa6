# It reads what a cache has left in an arena by the cache's own code.
TOOLLIBS_tgtimg := all
