#!/bin/sh
# A compromised runner: says what a runner says of every protocol, then anything at all, and never ends by itself.
echo '{"type":"ready","protocol_min":1,"protocol":1000,"version":"0.1.0"}'
head -c 200000 /dev/urandom
echo
echo '{"type":"result","nonce":"guessed","exit":{"code":0}}'
exec sleep 1000000
