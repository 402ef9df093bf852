print "not Python 3"
