#!/bin/sh
# A compromised runner that knows its part: it takes its claim and its start, and answers the run with whatever it likes.
say() { printf '%s\n' "$1"; }
while read -r line; do
  case $line in
    *'"type":"claim"'*)
      nonce=$(printf '%s' "$line" | sed 's/.*"nonce":"\([^"]*\)".*/\1/')
      say '{"type":"claimed","nonce":"'"$nonce"'"}'
      ;;
    *'"type":"start"'*) say '{"type":"ready","nonce":"'"$nonce"'","protocol":2,"version":"0.1.0"}' ;;
    *'"type":"run"'*)
      say '{"type":"result","nonce":"guessed","exit":{"code":0}}'
      say '{"type":"started","nonce":"guessed","id":"00000000-0000-7000-8000-000000000000","context":""}'
      say '{"type":"sealed","nonce":"'"$nonce"'","sequence":0,"data":"bm90IHNlYWxlZA=="}'
      # One line of 40 MB, then nothing for ever.
      head -c 40000000 /dev/zero | tr '\0' x
      exec sleep 1000000
      ;;
  esac
done
