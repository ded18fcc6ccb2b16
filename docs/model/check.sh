#!/bin/sh
# Runs the cases of cases.txt that are marked "ci", or all with "all", or those
# that are named. Exits 1 if one does not end as it says, and tells in its last
# line how many there were. Needs spin 6.5 and a C compiler.
# JOBS = how many at once,
# MEM = MiB for one search, LIMIT = seconds for one, WORK = folder for what is built.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if [ -n "${WORK:-}" ]; then
	mkdir -p "$WORK"
	work=$WORK
else
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
fi
want=${*:-ci}
jobs=${JOBS:-2}

# one NAME EXPECT FLAGS... runs a case and says how it ended.
one() {
	name=$1 expect=$2
	shift 2
	kind="-DCOLLAPSE -DSAFETY" args="" optimize=-O1
	case $name in
	m-* | asis-*) optimize=-O0 ;;                      # found soon: to compile takes longer than to search
	l-*) kind="-DCOLLAPSE -DNFAIR=3" args="-a -f" ;;   # liveness under weak fairness
	b-*) kind="-DBITSTATE -DSAFETY" args="-w33 -Q2" ;; # a search for errors, no proof
	esac
	mkdir -p "$work/$name"
	cd "$work/$name"
	cp "$here"/*.pml .
	rm -f ./*.trail
	got=unfinished
	# shellcheck disable=SC2086 # the flags are words
	if spin -a "$@" fencing.pml >spin.out && "${CC:-gcc}" $optimize -w -DMEMLIM="${MEM:-4000}" $kind -o pan pan.c; then
		# shellcheck disable=SC2086
		timeout -s INT "${LIMIT:-1800}" ./pan -m200000 $args >pan.out 2>&1 || true
		if grep -q 'errors: 0' pan.out; then got=ok; fi
		case $name in b-*) ;; *) if grep -qi 'not completed' pan.out; then got=unfinished; fi ;; esac
		if grep -q 'errors: [1-9]' pan.out; then got=fail; fi
	else
		: >pan.out
	fi
	states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' pan.out)
	echo "$name expect=$expect got=$got states=${states:-?} $(grep -m1 '^pan:1:' pan.out || true)" | tee result
}

ran=0
while read -r name set expect flags; do
	case $name in '' | '#'*) continue ;; esac
	case " $want " in *" all "* | *" $set "* | *" $name "*) ;; *) continue ;; esac
	rm -f "$work/$name/result"
	# shellcheck disable=SC2086
	(one "$name" "$expect" $flags) &
	ran=$((ran + 1))
	names="${names:-} $name"
	[ $((ran % jobs)) -ne 0 ] || wait
done <"$here/cases.txt"
wait
if [ $ran -eq 0 ]; then
	echo "no case of this name: $want" >&2
	exit 1
fi
bad=0
for name in $names; do
	read -r _ expect got _ <"$work/$name/result" || got=
	[ "got=${expect#expect=}" = "$got" ] || bad=$((bad + 1))
done
echo "{\"target\":\"model\",\"cases\":$ran,\"unexpected\":$bad}"
[ $bad -eq 0 ]
