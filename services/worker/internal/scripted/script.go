package scripted

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/strictjson"
)

const (
	maxScript = 256 << 10 // bytes
	maxSteps  = 4096
	// maxDepth has room for arguments in a call in nested branches.
	maxDepth = event.MaxArgumentsDepth + 16
)

// step is one thing to do.
type step interface {
	// play does it, as an actor of the run.
	play(ctx context.Context, a actor) error
}

// check is what some steps have to say about their own fields.
type checked interface{ check() error }

// Marks of steps that not everything may have or do.
type (
	// hostileStep attacks, or ends the worker.
	hostileStep interface{ hostile() }
	// asking ends the run with a question: the rest is played when it is answered.
	asking interface{ asks() }
)

// script are steps, as they were written and as they are played.
type script struct {
	text  []json.RawMessage
	steps []step
}

var (
	errHostile = errors.New("a step that only a hostile script may have")
	errNested  = errors.New("a step that stands at the top of a script only")
)

// parse decodes a script strictly.
func parse(text []byte, hostile bool) (script, error) {
	return parseAt(text, hostile, true)
}

func parseAt(text []byte, hostile, top bool) (script, error) {
	var s script
	o := strictjson.Options{MaxBytes: maxScript, MaxDepth: maxDepth}
	if err := strictjson.Unmarshal(text, &s.text, o); err != nil {
		return script{}, err
	}
	if len(s.text) > maxSteps {
		return script{}, fmt.Errorf("more than %d steps", maxSteps)
	}
	for i, raw := range s.text {
		st, err := parseStep(raw, hostile, top)
		if err != nil {
			return script{}, fmt.Errorf("step %d: %w", i+1, err)
		}
		s.steps = append(s.steps, st)
	}
	return s, nil
}

func parseStep(raw json.RawMessage, hostile, top bool) (step, error) {
	var head struct {
		Do string `json:"do"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return nil, errors.New("not an object with a do")
	}
	st := stepOf(head.Do)
	if st == nil {
		return nil, errors.New("an unknown do")
	}
	o := strictjson.Options{MaxBytes: maxScript, MaxDepth: maxDepth, RequireFields: true}
	if err := strictjson.Unmarshal(raw, st, o); err != nil {
		return nil, err
	}
	if _, attacks := st.(hostileStep); attacks && !hostile {
		return nil, errHostile
	}
	if _, asks := st.(asking); asks && !top {
		return nil, errNested
	}
	if p, ok := st.(interface{ parse(hostile bool) error }); ok {
		if err := p.parse(hostile); err != nil {
			return nil, err
		}
	}
	if c, ok := st.(checked); ok {
		if err := c.check(); err != nil {
			return nil, err
		}
	}
	return st, nil
}

// kind is the field that says what a step is.
type kind struct {
	Do string `json:"do"`
}

func stepOf(do string) step {
	switch do {
	case "text":
		return &textStep{}
	case "reasoning":
		return &reasoningStep{}
	case "usage":
		return &usageStep{}
	case "warning":
		return &warningStep{}
	case "draft":
		return &draftStep{}
	case "delay":
		return &delayStep{}
	case "call":
		return &callStep{}
	case "parallel":
		return &parallelStep{}
	case "subagent":
		return &subagentStep{}
	case "recall":
		return &recallStep{}
	case "remember":
		return &rememberStep{}
	case "memory_get":
		return &memoryGetStep{}
	case "memory_put":
		return &memoryPutStep{}
	case "files":
		return &filesStep{}
	case "upload":
		return &uploadStep{}
	case "approve":
		return &approveStep{}
	case "form":
		return &formStep{}
	case "decision":
		return &decisionStep{}
	case "commit":
		return &commitStep{}
	case "end":
		return &endStep{}
	case "fail":
		return &failStep{}
	default:
		return faultOf(do)
	}
}

func faultOf(do string) step {
	switch do {
	case "garbage":
		return &garbageStep{}
	case "illegal":
		return &illegalStep{}
	case "flood":
		return &floodStep{}
	case "overrun":
		return &overrunStep{}
	case "ignore_cancel":
		return &ignoreCancelStep{}
	case "late":
		return &lateStep{}
	case "panic":
		return &panicStep{}
	case "hang":
		return &hangStep{}
	case "exit":
		return &exitStep{}
	case "crash":
		return &crashStep{}
	case "fork":
		return &forkStep{}
	case "fork_bomb":
		return &forkBombStep{}
	case "orphans":
		return &orphansStep{}
	case "memory_hog":
		return &memoryHogStep{}
	case "goroutines":
		return &goroutinesStep{}
	case "disk":
		return &diskStep{}
	case "spin":
		return &spinStep{}
	case "probe":
		return &probeStep{}
	default:
		return nil
	}
}
