/* The committed record of one binding and the writes of fencing.md.
 * Every block marked [write] is one conditional change of one document; [read] is one majority read.
 * Between two of them any process may pause for ever. Default = the text with the fixes of the README;
 * -DASIS_x = the text before fix x; -DM_x = a mutation that must fail; the other -D choose the scenario. */

#include "record.pml"


#ifdef ASIS_BEAT
#define MINE(r) false
#else
#define MINE(r) (cur == r && owner == me)
#endif
#ifdef ASIS_AGAIN
#define LANDED false
#else
#define LANDED (n < NEV && eh[r] > n && lg[AT(r, n)] == me)
#endif
#define MAYSTOP  if :: stops -> goto stopped :: true fi

proctype Starter(byte me; byte key; bit stops) {
  byte r, ep, g, rv, n, b, p, s, d, fate; bit ok, live;
again:
  atomic { rv = rev; ep = epoch; r = RID(ep, key); live = (cur == r || ending == r) };  /* [read] */
  d = doc[r];                                             /* [read] */
#ifdef ASIS_DOC
  if
  :: d >= 10 -> goto done
  :: d == 9 -> goto wait
  :: else -> atomic { if :: doc[r] == 0 -> doc[r] = 9 :: else -> goto wait fi }  /* [write] insert */
  fi;
#else
  if
  :: d >= 10 -> goto done                                 /* answered with its terminal */
#ifndef ASIS_BEAT
  :: d < 10 && live && cur == r && owner == me -> goto adopt    /* its own late write: it drives the run */
#endif
  :: d < 10 && live && !MINE(r) -> goto wait              /* already_running */
  :: else
  fi;
#endif
  MAYSTOP;
  atomic {                                                /* [write] 1 */
    net();
    if
    :: fate == 3 -> if :: srun == 0 -> srun = r; sowner = me; srev = rv :: else fi; ok = 0
    :: fate < 2 && cur == 0 && ending == 0 && F_REV(rev == rv) ->
       cur = r; owner = me; rev++; ok = 1;
          starts[r]++;
          assert(starts[r] == 1 && term[r] == OPEN)       /* S4 */
    :: else -> ok = 0
    fi
  };
  if :: fate != 0 -> ok = (cur == r && owner == me) :: else fi;    /* [read] back */
  if :: !ok -> goto wait :: else fi;
adopt:
  atomic { g = gen; n = eh[r] };                          /* [read] the worker of this generation */
drive:
  do
  :: n < NEV ->
     MAYSTOP;
     atomic {
       net();
       if
       :: fate == 3 -> if :: erun == 0 -> erun = r; epos = n; enonce = me; egen = g :: else fi
       :: fate == 2
       :: else ->
          apply_event(r, ep, g, me, n)
#ifdef ASIS_BATCH
          ; if :: ok && live -> lg[AT(r, n + 1)] = me; eh[r] = n + 2 :: else fi
#endif
       fi
     };
     if
     :: fate == 0 && ok -> n++
     :: fate == 0 && !ok -> goto look
     :: fate != 0 ->                                      /* [read] back */
        d_step {
#ifdef M_NONCE
          ok = (eh[r] > n); d = 0
#else
          ok = (eh[r] > n && lg[AT(r, n)] == me);
          d = (cur == r && owner == me && gen == g && end[r] == OPEN && eh[r] == n)
#endif
        };
        if
        :: ok ->
#ifdef ASIS_BATCH
           assert(!live || lg[AT(r, n + 1)] == me); n = n + live;
#endif
           assert(lg[AT(r, n)] == me); n++          /* S5: it believes that it appended n */
#ifdef ASIS_BATCH
        :: !ok && d -> live = 1                           /* again with one event more, and the same nonce */
#else
        :: !ok && d -> skip                               /* the same batch again, unchanged */
#endif
        :: else -> goto look
        fi
     fi
#ifdef TRIM
  :: n > 0 && base[r] == 0 ->                             /* full tail */
     atomic { b = base[r]; s = n; n = eh[r] };            /* [read] */
     copy_tail(r);
     MAYSTOP;
     atomic { if :: cur == r && owner == me && base[r] == b -> base[r] = n; check_visible(r) :: else fi; n = s; s = 0; b = 0 }
#endif
  :: n > 0 || NEV == 0 || stops -> goto finish            /* stream ended or deadline */
#ifndef BEAT
  :: n == NEV -> end[r] != OPEN || cur != r -> goto look
#endif
  od;
look:                                                     /* [read] */
  if
#ifndef ASIS_AGAIN
  :: cur == r && owner == me && LANDED -> n++; goto drive   /* an earlier try got there */
#endif
  :: cur == r && owner == me && end[r] == OPEN && !LANDED -> g = gen; goto drive    /* carried over */
  :: cur == r && owner == me && end[r] != OPEN -> goto closing
  :: else -> goto wait
  fi;
finish:
  atomic { if :: cur == r && owner == me && end[r] == OPEN -> end[r] = ERROR :: else fi };   /* [write] 3 */
closing:
  MAYSTOP;
  settle_effects(r);
  atomic {                                                /* [write] 3: terminal and removal */
    if
    :: cur == r && owner == me ->
       put_terminal(r, s, me); rev++;
#ifdef ASIS_END
       cur = 0; owner = 0; base[r] = eh[r]; check_visible(r); d = 1
#else
       to_ending(r)
#endif
    :: else
    fi
  };
#ifdef ASIS_END
  MAYSTOP;
  atomic { if :: d == 1 && term[r] != OPEN -> doc[r] = 10 + term[r] :: else fi };
#endif
wait:                                                     /* the caller asks again until it has a terminal */
  atomic { r = 0; g = 0; n = 0; s = 0; d = 0; fate = 0; ok = 0; live = 0; ep = 0 };
  MAYSTOP;
  atomic { (rev != rv || (cur == 0 && ending == 0)) -> rv = 0 };
  goto again;
done:
  if :: me == NSTART -> answered = 1 :: else fi;
  goto over;
stopped: stopped_[me] = 1;
over: skip
}

#ifdef CLAIMS
#define STRAY(g) (claim[g] && lease != g && !lend[g])

inline delete_claim(g) {                                  /* in the world; that it is gone already is no error */
  atomic { assert(g != lease); claim[g] = 0 }             /* S9: the sandbox in the lease is never deleted */
}
#endif

proctype Keeper(byte me; bit stops) {
  byte r, o, n, b, p, s; bit ok;
endk:
  do
  :: atomic { cur != 0 && LOOKS_STOPPED(owner) -> r = cur; o = owner };    /* write 10 */
     atomic {                                             /* [write] */
       if
       :: cur == r && owner == o -> set_end(r, LOST); to_ending(r); rev++
       :: else
       fi; r = 0; o = 0
     }
  :: atomic { ending != 0 -> r = ending };
     conclude(r); r = 0
#ifdef CLAIMS
  :: atomic { lend[1] || lend[2] || lend[3] ->             /* write 8: the claim of a lease in `ending`, [read] */
       if :: lend[1] -> o = 1 :: lend[2] -> o = 2 :: lend[3] -> o = 3 fi };
     delete_claim(o);
     atomic { lend[o] = 0; o = 0 }                         /* [write] drop the lease */
#ifdef M_LIST
  /* the record before the claims: what was claimed in between is taken for nobody's */
  :: atomic { o = lease; n = lend[1] + 2 * lend[2] + 4 * lend[3]; s = 1 };
     atomic {
       if
       :: claim[1] && o != 1 && !(n & 1) -> o = 1
       :: claim[2] && o != 2 && !(n & 2) -> o = 2
       :: claim[3] && o != 3 && !(n & 4) -> o = 3
       :: else -> o = 0; n = 0; s = 0; goto endk
       fi };
     n = 0; s = 0;
     delete_claim(o); o = 0
#else
  /* a create that came late made a claim that no record names: list the claims, then [read] the record */
  :: atomic { STRAY(1) || STRAY(2) || STRAY(3) ->
       if :: STRAY(1) -> o = 1 :: STRAY(2) -> o = 2 :: STRAY(3) -> o = 3 fi };
     if
     :: o != lease && !lend[o] -> delete_claim(o)
     :: else
     fi; o = 0
#endif
#endif
  :: stops -> break
  od
}

proctype Replacer() {                                     /* write 6 */
  byte g, fate; bit ok;
  do
  :: gen < 3 ->
     g = gen;
     atomic {
       if
       :: gen == g ->
          retire_lease();
          gen++; rev++; ok = 1;
#ifdef CLAIMS
          lease = gen;
#endif
          if
          :: cur != 0 && UNTOUCHED(cur) ->
             assert(BEGUN(cur) == 0 && !headed[cur])      /* S2, S4: what runs anew has done nothing */
          :: cur != 0 && !UNTOUCHED(cur) -> set_end(cur, LOST); to_ending(cur)
          :: cur == 0
          fi
       :: else
       fi
     };
#ifdef CLAIMS
     if                                                   /* only then the claim; it may stop before, or come late */
     :: ok -> atomic {
          net();
          if
          :: fate == 3 -> if :: zclaim == 0 -> zclaim = g + 1 :: else fi
          :: fate == 2
          :: else -> claim[g + 1] = 1
          fi; fate = 0
        }
     :: true
     fi;
#endif
     atomic { g = 0; ok = 0 }
  :: break
  od
}

proctype Canceller() {                                    /* write 3 */
  byte r;
endc: atomic { cur != 0 -> r = cur };
  atomic { if :: cur == r -> set_end(r, CANCELLED) :: else fi; r = 0 }
}

proctype Clearer() {                                      /* write 7 */
  atomic {
    retire_lease();
    epoch++; gen++; rev++; hrev = 0; hrun = 0; hsnap = 0; iid = 0; idec = 0; inew = 0;
    if
    :: cur != 0 ->
#ifndef ASIS_CLEAR
       set_end(cur, LOST);
#endif
#ifdef M_CLEAR
       cur = 0; owner = 0
#else
       to_ending(cur)
#endif
    :: else
    fi
  }
}

proctype Facade(byte me) {                                /* write 5, for a worker of the generation it saw */
  byte r, g, ep, hr, n, fate; bit ok;
endf: atomic { cur != 0 -> r = cur; g = gen; ep = epoch; hr = hrev; n = eh[cur] };
  atomic { if :: cur == r && gen == g && epoch == ep -> snap[me] = 1; snaprun[me] = r :: else -> goto outf fi };   /* the pending snapshot */
  if :: snap[me] == 0 -> goto outf :: else fi;            /* [read]: is it there? */
  atomic {
    net();
    if
    :: fate == 3 -> if :: crun == 0 -> crun = r; cgen = g; cep = ep; chr = hr; cn = n; csnap = me :: else fi
    :: fate == 2
    :: else -> apply_head(r, g, ep, hr, n, me)
    fi
  };
outf: atomic { r = 0; g = 0; ep = 0; hr = 0; n = 0; fate = 0; ok = 0 }
}

#ifdef M_SNAP
#define OVER(r) true
#else
#define OVER(r) (doc[r] >= 10)
#endif

proctype Sweeper() {                                      /* write 5: what nobody needs any more */
  byte i;
ends:
  if                                                      /* [read]: the run of a snapshot is over */
  :: atomic { snap[1] == 1 && OVER(snaprun[1]) && hsnap != 1 -> i = 1 }
  :: atomic { snap[2] == 1 && OVER(snaprun[2]) && hsnap != 2 -> i = 2 }
  fi;                                                     /* and it is not the head */
  atomic { assert(hsnap != i); snap[i] = 2; i = 0 };      /* S8 */
  goto ends
}

proctype Broker(byte me; byte k) {                        /* write 4 */
  byte r, g, ep, fate; bit ok;
endb: atomic { cur != 0 -> r = cur; g = gen; ep = epoch };
admit:
  atomic {                                                /* [write] admit */
    net();
    if
    :: fate == 3 -> if :: arun == 0 -> arun = r; akey = k; agen = g; aep = ep :: else fi; ok = 0
    :: fate == 2 -> ok = 0
    :: else -> apply_admit(r, k, g, ep)
    fi
  };
  if
  :: fate != 0 -> fate = 0; if :: goto admit :: goto out fi
  :: fate == 0 && !ok -> goto out
  :: else
  fi;
#ifdef M_INSERT
  if :: led[KEY(r, k)] == NOROW :: else -> goto dup fi;   /* read ... */
  atomic { led[KEY(r, k)] = DISPATCHED; lednonce[KEY(r, k)] = me; ok = 1; fate = 0 };   /* ... then write */
#else
  atomic {
    net();
    if
    :: fate == 3 -> if :: zrun == 0 -> zrun = r; zkey = k; znonce = me :: else fi
    :: fate == 2
    :: else -> insert_row(r, k, me)
    fi
  };
#endif
  if
  :: fate != 0 ->                                         /* [read] back */
#ifdef ASIS_ROW
     ok = (led[KEY(r, k)] == DISPATCHED)                  /* by its unique key */
#else
     ok = (led[KEY(r, k)] == DISPATCHED && lednonce[KEY(r, k)] == me)   /* by its nonce */
#endif
  :: else
  fi;
  if :: !ok -> goto dup :: else fi;
  if
  :: atomic {                                             /* the effect begins */
       assert(lednonce[KEY(r, k)] == me && led[KEY(r, k)] == DISPATCHED);   /* S2 */
       begun[KEY(r, k)]++;
       assert(begun[KEY(r, k)] == 1);
       assert(term[r] == OPEN || status[r] == POSSIBLE)
     };
     if
     :: atomic { if :: led[KEY(r, k)] == DISPATCHED -> led[KEY(r, k)] = CONCLUDED :: else fi }
     :: goto out                                          /* stops: the row stays `dispatched` */
     fi
  :: atomic { led[KEY(r, k)] == DISPATCHED -> led[KEY(r, k)] = NOTSENT }   /* later than two seconds */
  fi;
dup:                                                      /* the key leaves `admitted` when its row has an outcome */
  atomic { if :: cur == r && gen == g && led[KEY(r, k)] >= CONCLUDED -> adm[KEY(r, k)] = 0 :: else fi };
out: atomic { r = 0; g = 0; ep = 0; fate = 0; ok = 0 }
}

proctype Resumer(byte me; byte dec) {                     /* write 9 */
  byte id, iv, ep, nr, won, fate; bit ok;
endr: atomic { iid != 0 -> id = iid; iv = irev; ep = epoch; nr = 4 + ep };
  atomic {
    net();
    if
    :: fate != 2 && iid == id && irev == iv && epoch == ep && cur == 0 && ending == 0 ->
#ifndef M_RESUME
       iid = 0;
#endif
       idec = dec; inew = nr; cur = nr; owner = me; rev++; ok = 1;
       starts[nr]++;
       assert(doc[id] == 10 + INTERRUPTED);               /* S3: what is resumed was seen as interrupted */
       assert(starts[nr] == 1)                            /* S6, S4 */
    :: else -> ok = 0
    fi
  };
  if
  :: fate == 0 && ok -> won = 1
  :: else ->                                              /* [read] back: stored answer or 409 */
     if
     :: inew == nr && idec == dec && epoch == ep -> won = 2
     :: else -> won = 0
     fi
  fi;
  assert(won != 2 || starts[nr] == 1)
}

proctype Net() {                                          /* what was sent long ago arrives */
  byte p; bit ok;
endn:
  do
  :: atomic { srun != 0 ->
       if
       :: cur == 0 && ending == 0 && rev == srev ->
          cur = srun; owner = sowner; rev++; starts[srun]++;
          assert(starts[srun] == 1 && term[srun] == OPEN)  /* S4 */
       :: else
       fi; srun = 0; sowner = 0; srev = 0
     }
  :: atomic { zrun != 0 -> insert_row(zrun, zkey, znonce); zrun = 0; zkey = 0; znonce = 0 }
  :: atomic { arun != 0 -> apply_admit(arun, akey, agen, aep); arun = 0; akey = 0; agen = 0; aep = 0 }
  :: atomic { crun != 0 -> apply_head(crun, cgen, cep, chr, cn, csnap); crun = 0; cgen = 0; cep = 0; chr = 0; cn = 0; csnap = 0 }
#ifdef CLAIMS
  :: atomic { zclaim != 0 -> claim[zclaim] = 1; zclaim = 0 }
#endif
  :: atomic { erun != 0 -> apply_event(erun, epoch, egen, enonce, epos); erun = 0; epos = 0; enonce = 0; egen = 0 }
  od
}

proctype Quiet() {                                        /* nothing is left when nothing moves any more */
  byte i;
  timeout -> d_step {
    assert(cur == 0 && ending == 0);                      /* L1, for ends of the run */
#ifdef CLAIMS
    i = 1;                                                /* S9: no claim is left that no record names */
    do
    :: i < 4 -> assert(!lend[i] && (!claim[i] || lease == i)); i++
    :: else -> break
    od;
#endif
    i = 1;
    do
    :: i < NR -> assert(starts[i] == terms[i] && (starts[i] == 0 || doc[i] == 10 + term[i])); i++
    :: else -> break
    od
#ifdef LAST
    ; assert(answered)                                   /* L1: the later start got its answer */
#endif
  }
}

init {
  atomic {
    byte i = 1;
#ifdef CLAIMS
    claim[1] = 1;
#endif
    do :: i <= NSTART -> run Starter(i, (i == 3 -> 2 : 1), (i < 2)); i++ :: else -> break od;
    i = 1;
    do :: i <= NKEEP -> run Keeper(10 + i, (i < NKEEP)); i++ :: else -> break od;
    i = 1;
    do :: i <= NBROKER -> run Broker(20 + i, 0); i++ :: else -> break od;
#if NKEYS > 1
    i = 1;
    do :: i <= NBROKER -> run Broker(25 + i, 1); i++ :: else -> break od;
#endif
    i = 1;
    do :: i <= NFACADE -> run Facade(i); i++ :: else -> break od;
    i = 1;
    do :: i <= NSWEEP -> run Sweeper(); i++ :: else -> break od;
    i = 1;
    do :: i <= NRESUME -> run Resumer(30 + i, i); i++ :: else -> break od;
    i = 1;
    do :: i <= NCANCEL -> run Canceller(); i++ :: else -> break od;
    i = 1;
    do :: i <= NREPLACE -> run Replacer(); i++ :: else -> break od;
    i = 1;
    do :: i <= NCLEAR -> run Clearer(); i++ :: else -> break od;
#ifdef DELAY
    run Net();
#endif
    run Quiet(); i = 0
  }
}

#ifdef LIVE1
ltl concluded { [] (ending != 0 -> <> (ending == 0)) }
#endif
#ifdef LIVE2
ltl served { <> answered }
#endif
