/* What the processes of fencing.pml share: the documents, the filters, the writes used in several places.
 * pkg/binding names the flags of this model where a clause of it answers one. */

#ifndef NSTART
#define NSTART 2          /* starters: 1 and 2 bring key 1, 3 brings key 2 */
#endif
#ifndef NKEEP
#define NKEEP 1           /* replicas' background loops; the last one never stops */
#endif
#ifndef NBROKER
#define NBROKER 0         /* attempts at each effect key */
#endif
#ifndef NKEYS
#define NKEYS 1           /* effect keys of a run: 1 or 2 */
#endif
#ifndef NSWEEP
#define NSWEEP 0          /* replicas that delete snapshots nobody needs */
#endif
#ifndef NFACADE
#define NFACADE 0         /* workers that ask for a head commit */
#endif
#ifndef NRESUME
#define NRESUME 0
#endif
#ifndef NCANCEL
#define NCANCEL 0
#endif
#ifndef NREPLACE
#define NREPLACE 0
#endif
#ifndef NCLEAR
#define NCLEAR 0
#endif
#ifndef LOSSES
#define LOSSES 1          /* replies that may be lost */
#endif
#ifndef NEV
#define NEV 1             /* batches a worker sends */
#endif

#define NR 7              /* run ids: 1..4 = (epoch, key); 5, 6 = resumed, by epoch */
#define ME 4              /* positions in a log */
#define RID(e, k) (((e) - 1) * 2 + (k))
#define AT(r, p) ((r) * ME + (p))
#define KEY(r, k) ((r) * NKEYS + (k))
#if NKEYS > 1
#define ANY_ADM(r) (adm[KEY(r, 0)] || adm[KEY(r, 1)])
#define BEGUN(r) (begun[KEY(r, 0)] + begun[KEY(r, 1)])
#else
#define ANY_ADM(r) adm[r]
#define BEGUN(r) begun[r]
#endif
/* end and terminal */
#define OPEN 0
#define CANCELLED 1
#define SUCCESS 2
#define INTERRUPTED 3
#define ERROR 4
#define LOST 5
/* ledger rows */
#define NOROW 0
#define DISPATCHED 1
#define REVOKED 2
#define CONCLUDED 3
#define NOTSENT 4
/* side_effect_status */
#define NONE 1
#define POSSIBLE 2
#define KNOWN 3

/* the filters that a mutation drops */
#ifdef M_GEN
#define F_EVENT(x) true
#else
#define F_EVENT(x) (x)
#endif
#ifdef M_GENA
#define F_ADMIT(x) true
#else
#define F_ADMIT(x) (x)
#endif
#ifdef M_GENC
#define F_HEAD(x) true
#else
#define F_HEAD(x) (x)
#endif
#ifdef M_REV
#define F_REV(x) true
#else
#define F_REV(x) (x)
#endif
#ifdef M_REVOKE
#define F_REVOKE false
#else
#define F_REVOKE true
#endif
#ifdef ASIS_CONC
#define F_CONC(x) true
#else
#define F_CONC(x) (x)
#endif
#ifdef ASIS_CARRY
#define UNTOUCHED(r) (eh[r] == 0 && !ANY_ADM(r))
#else
#define UNTOUCHED(r) (eh[r] == 0 && !everadm[r] && end[r] == OPEN)
#endif

/* ---- the record ---- */
byte epoch = 1, gen = 1, rev = 0;
byte cur = 0, owner = 0;         /* run id, owning incarnation */
byte ending = 0;                 /* the run in `ending` (there is never more than one) */
byte hrev = 0, hrun = 0;         /* head */
byte hsnap = 0;                  /* the snapshot that the head names */
#ifdef CLAIMS
byte lease = 1;                  /* the generation whose lease stands; 0 for none */
bit lend[5];                     /* leases in `ending`, by generation */
#endif
byte iid = 0, irev = 0;          /* interrupt: id (= run that raised it) and revision */
byte idec = 0, inew = 0;         /* the consumed interrupt: decision and new run */
/* parts of `run` that travel to `ending` with it */
byte end[NR], eh[NR], base[NR], term[NR], status[NR];
bit adm[NR * NKEYS], everadm[NR];
byte lg[28];                     /* nonce of what stands at (run, position) */
/* ---- other documents ---- */
byte doc[NR];                    /* run document: 0 absent, 9 open, else 10 + terminal */
byte chunk[28];                  /* chunk by (run, first position): position after its last */
byte led[NR * NKEYS], lednonce[NR * NKEYS];   /* ledger rows by run and key */
byte snap[4], snaprun[4];        /* snapshots by facade: 1 there, and of which run */
#ifdef CLAIMS
bit claim[5];                    /* claims in the world, by generation: their name follows from it */
byte zclaim = 0;                 /* a create that the network still holds */
#endif
/* ---- ghosts, seen by assertions only ---- */
byte starts[NR], terms[NR], begun[NR * NKEYS];
bit headed[NR], fin[NR];
byte losses = LOSSES;
byte zrun = 0, zkey = 0, znonce = 0;  /* a ledger insert that the network still holds */
byte arun = 0, akey = 0, agen = 0, aep = 0;      /* an admission that it still holds */
byte crun = 0, cgen = 0, cep = 0, chr = 0, cn = 0, csnap = 0;   /* a head commit that it still holds */
byte erun = 0, epos = 0, enonce = 0, egen = 0;  /* an event batch that it still holds */
byte srun = 0, sowner = 0, srev = 0;             /* a start that it still holds */
bit answered = 0, stopped_[4];

/* who may be taken over: anybody who looks stopped (default), or, with -DBEAT, only who has stopped */
#ifdef BEAT
#define LOOKS_STOPPED(o) (o > 3 || stopped_[o])
#else
#define LOOKS_STOPPED(o) true
#endif

/* fate of one write: 0 reply comes, 1 done and reply lost, 2 not done and reply lost, 3 done later */
inline net() {
  if
  :: fate = 0
  :: losses > 0 -> losses--; fate = 1
  :: losses > 0 -> losses--; fate = 2
#ifdef DELAY
  :: losses > 0 -> losses--; fate = 3
#endif
  fi
}

/* what a reader can join from position 0: chunks, then the tail while the record holds it */
inline check_visible(r) {
  p = 0;
  do
  :: p < base[r] && chunk[AT(r, p)] > p -> p = chunk[AT(r, p)]
  :: else -> break
  od;
  assert(p >= base[r]);                                   /* S5: no event vanishes */
  p = 0
}

inline put_terminal(r, s, me) {
  assert(end[r] != OPEN);
  term[r] = end[r]; status[r] = s;
  lg[AT(r, eh[r])] = me; eh[r]++;
  terms[r]++;
  assert(terms[r] == 1);                                  /* S3: one terminal */
  assert(!(headed[r] && term[r] != SUCCESS && term[r] != INTERRUPTED && term[r] != CANCELLED)); /* S3 */
  assert(!fin[r] || term[r] == SUCCESS || term[r] == INTERRUPTED);
  assert((term[r] != SUCCESS && term[r] != INTERRUPTED) || headed[r]);
  assert(s != NONE || BEGUN(r) == 0)
}

inline set_end(r, e) {
#ifdef M_END
  end[r] = e
#else
  if :: end[r] == OPEN -> end[r] = e :: else fi
#endif
}

inline to_ending(r) {
  assert(ending == 0);
  ending = r; cur = 0; owner = 0
}

inline apply_event(r, ep, g, me, n) {       /* write 2 */
  if
  :: cur == r && epoch == ep && owner == me && end[r] == OPEN && eh[r] == n && F_EVENT(gen == g) ->
        assert(gen == g && epoch == ep);                   /* S1 */
        assert(term[r] == OPEN);
        lg[AT(r, n)] = me; eh[r] = n + 1; ok = 1
  :: else -> ok = 0
  fi
}

inline insert_row(r, k, me) {               /* unique insert of write 4 */
  if
  :: led[KEY(r, k)] == NOROW -> led[KEY(r, k)] = DISPATCHED; lednonce[KEY(r, k)] = me; ok = 1
  :: else -> ok = 0
  fi
}

inline apply_admit(r, k, g, ep) {           /* the admission of write 4; to repeat it is harmless */
  if
  :: cur == r && epoch == ep && end[r] == OPEN && F_ADMIT(gen == g) ->
        assert(gen == g && epoch == ep && end[r] == OPEN && term[r] == OPEN);   /* S1, S2 */
        adm[KEY(r, k)] = 1; everadm[r] = 1; ok = 1
  :: else -> ok = 0
  fi
}

inline apply_head(r, g, ep, hr, n, sn) {    /* write 5 */
  if
  :: cur == r && epoch == ep && hrev == hr && eh[r] >= n && F_HEAD(gen == g) && (end[r] == OPEN || end[r] == CANCELLED) ->
        assert(gen == g && epoch == ep);                  /* S1 */
        assert(eh[r] >= n && term[r] == OPEN);
        assert(snap[sn] == 1 && snaprun[sn] == r);        /* S8: a head names a snapshot that is there */
        hrev++; hrun = r; headed[r] = 1; hsnap = sn; ok = 1;
        if
        :: end[r] != CANCELLED -> end[r] = SUCCESS; fin[r] = 1; iid = 0
#if NRESUME > 0
        :: end[r] != CANCELLED && r < 5 -> end[r] = INTERRUPTED; fin[r] = 1; iid = r; irev = hrev; idec = 0; inew = 0
#endif
#ifdef ASIS_INTR
        :: end[r] == CANCELLED && r < 5 -> iid = r; irev = hrev; idec = 0; inew = 0
#else
        :: end[r] == CANCELLED -> iid = 0                 /* no interrupt from a cancelled run */
#endif
        fi
  :: else -> ok = 0
  fi
}

inline retire_lease() {                     /* of writes 6 and 7 */
#ifdef CLAIMS
  if :: lease != 0 -> lend[lease] = 1; lease = 0 :: else fi
#else
  skip
#endif
}

/* before a terminal: revoke what has no row, then the status from the ledger; [write] a key, [read] */
inline settle_effects(r) {
#ifndef NOFX
  if
  :: adm[KEY(r, 0)] -> atomic { if :: led[KEY(r, 0)] == NOROW && F_REVOKE -> led[KEY(r, 0)] = REVOKED :: else fi }
  :: else
  fi;
#if NKEYS > 1
  if
  :: adm[KEY(r, 1)] -> atomic { if :: led[KEY(r, 1)] == NOROW && F_REVOKE -> led[KEY(r, 1)] = REVOKED :: else fi }
  :: else
  fi;
#endif
  atomic {
    s = NONE;
    if
#if NKEYS > 1
    :: led[KEY(r, 0)] == DISPATCHED || led[KEY(r, 1)] == DISPATCHED -> s = POSSIBLE
    :: led[KEY(r, 0)] != DISPATCHED && led[KEY(r, 1)] != DISPATCHED && (led[KEY(r, 0)] == CONCLUDED || led[KEY(r, 1)] == CONCLUDED) -> s = KNOWN
#else
    :: led[r] == DISPATCHED -> s = POSSIBLE
    :: led[r] == CONCLUDED -> s = KNOWN
#endif
    :: else
    fi
  }
#else
  s = NONE
#endif
}

/* write 8. Any number of replicas may stand anywhere in it */
inline conclude(r) {
  settle_effects(r);
  atomic {                                                /* [write] terminal, once */
    if
    :: ending == r && F_CONC(term[r] == OPEN) -> put_terminal(r, s, me)
    :: else
    fi
  };
  do                                                      /* the whole tail into chunks */
  :: atomic { b = base[r]; n = eh[r]; ok = (ending == r) }; /* [read] */
     if
     :: !ok || b == n -> break
     :: else
     fi;
     copy_tail(r);
     atomic {                                             /* [write] trim */
       if :: ending == r && base[r] == b -> base[r] = n; check_visible(r) :: else fi
     }
  od;
  atomic { if :: ok && doc[r] < 10 -> doc[r] = 10 + term[r] :: else fi };  /* [write] run document */
  atomic {                                                /* [write] remove the entry */
    if
    :: ending == r ->
       assert(term[r] == end[r] && terms[r] == 1 && doc[r] == 10 + term[r] && base[r] == eh[r]);
       ending = 0
    :: else
    fi
  };
  b = 0; n = 0; s = 0; ok = 0
}

inline copy_tail(r) {
  atomic {                                                /* [write] unique insert of a chunk */
    if
    :: chunk[AT(r, b)] == 0 -> chunk[AT(r, b)] = n
#ifndef ASIS_CHUNK
    :: else -> n = chunk[AT(r, b)]                        /* one is there: trim to its end only */
#else
    :: else
#endif
    fi
  }
}
