# Sourced by the tests of kubectl, which set `who`: messages, and waits with a limit.

patience=60

step() { printf '%s: %s\n' "$who" "$*"; }

fail() {
  printf '%s: %s\n' "$who" "$*" >&2
  exit 1
}

# until_ok WHAT COMMAND...: runs it until it succeeds.
until_ok() {
  local what=$1 deadline=$((SECONDS + patience))
  shift
  until "$@"; do
    ((SECONDS < deadline)) || fail "still not: $what"
    sleep 0.1
  done
}
