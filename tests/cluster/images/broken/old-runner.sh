#!/bin/sh
# A runner of before the protocol's first version.
echo '{"type":"ready","protocol":0,"version":"0.0.1"}'
exec sleep 1000000
