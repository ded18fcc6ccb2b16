package demomodel

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Bounds of a script. A line beyond them is answered with a sentence that names
// the bound, never obeyed in part.
const (
	maxSteps  = 256
	maxRepeat = 100_000
	// maxOutput bounds the text that one script can ask for, in bytes.
	maxOutput = 32 << 20
	maxSleep  = 60 * time.Second
	// maxWait bounds all sleeps of one script together.
	maxWait   = 10 * time.Minute
	maxTokens = 1_000_000_000
)

type stepKind int

const (
	stepSay stepKind = iota + 1
	stepThink
	stepRepeat
	stepSleep
	stepCall
	stepBash
	stepError
	stepReset
	stepTruncate
)

// step is one thing to do. Which fields count depends on the kind.
type step struct {
	kind   stepKind
	text   string        // say, think, repeat; bash: the command
	count  int           // repeat
	wait   time.Duration // sleep
	tool   string        // call: what the script names, id or offered name
	args   string        // call: a JSON object, as written
	status int           // error
}

// script is what the command lines of one message ask for.
type script struct {
	steps []step
	usage *usage
}

// parseScript reads the lines of text that are commands; it reports whether there
// were any. A line that cannot be obeyed becomes a step that says so.
func parseScript(text string) (script, bool) {
	var s script
	found := false
	budget := budget{output: maxOutput, wait: maxWait}
	number := 0
	for line := range strings.Lines(text) {
		number++
		command, ok := commandOf(strings.TrimRight(line, "\r\n"))
		if !ok {
			continue
		}
		found = true
		if len(s.steps) == maxSteps {
			s.steps = append(s.steps, complain(number, fmt.Sprintf("a message has at most %d commands", maxSteps)))
			break
		}
		if problem := s.obey(command, &budget); problem != "" {
			s.steps = append(s.steps, complain(number, problem))
		}
	}
	return s, found
}

// approved is how a harness tells an agent whose session it had to load again
// that a person has approved a call: a sentence that any model understands.
var approved = regexp.MustCompile(`^- Approved(?: with a change)?: (\S+) with the arguments (\{.*\})\. Make exactly this call now\.$`)

// commandOf gives the command in a line: what follows ">>", or the call that the
// line says was approved.
func commandOf(line string) (command string, ok bool) {
	if command, ok := strings.CutPrefix(line, ">>"); ok {
		return command, true
	}
	if m := approved.FindStringSubmatch(line); m != nil {
		return "call " + m[1] + " " + m[2], true
	}
	return "", false
}

func complain(line int, problem string) step {
	return step{kind: stepSay, text: fmt.Sprintf("I cannot obey line %d: %s.", line, problem)}
}

// budget is what the rest of a script may still ask for.
type budget struct {
	output int
	wait   time.Duration
}

func (b *budget) takeOutput(n int) bool {
	if n > b.output {
		return false
	}
	b.output -= n
	return true
}

func (b *budget) takeWait(d time.Duration) bool {
	if d > b.wait {
		return false
	}
	b.wait -= d
	return true
}

// obey adds one command to the script, or says what is wrong with it.
func (s *script) obey(command string, left *budget) (problem string) {
	word, rest, _ := strings.Cut(command, " ")
	switch word {
	case "say", "think":
		return s.addText(word, rest, left)
	case "repeat":
		return s.addRepeat(rest, left)
	case "sleep":
		return s.addSleep(rest, left)
	case "call":
		return s.addCall(rest)
	case "usage":
		return s.setUsage(rest)
	case "error":
		return s.addError(rest)
	case "bash":
		return s.addBash(rest)
	case "reset":
		s.steps = append(s.steps, step{kind: stepReset})
		return ""
	case "truncate":
		s.steps = append(s.steps, step{kind: stepTruncate})
		return ""
	default:
		return "the commands are >>call, >>bash, >>say, >>think, >>repeat, >>sleep, >>usage, >>error, >>reset and >>truncate"
	}
}

func (s *script) addText(word, text string, left *budget) string {
	if strings.TrimSpace(text) == "" || !left.takeOutput(len(text)) {
		return fmt.Sprintf(">>%s takes a text, and all texts together have at most %d bytes", word, maxOutput)
	}
	kind := stepSay
	if word == "think" {
		kind = stepThink
	}
	s.steps = append(s.steps, step{kind: kind, text: text})
	return ""
}

func (s *script) addRepeat(rest string, left *budget) string {
	number, text, _ := strings.Cut(rest, " ")
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > maxRepeat || strings.TrimSpace(text) == "" {
		return fmt.Sprintf(">>repeat takes a count of 1 to %d and a text", maxRepeat)
	}
	// The product cannot overflow: the text is part of a 4 MiB request.
	if !left.takeOutput(n * (len(text) + 1)) {
		return fmt.Sprintf("all texts together have at most %d bytes", maxOutput)
	}
	s.steps = append(s.steps, step{kind: stepRepeat, count: n, text: text})
	return ""
}

func (s *script) addSleep(rest string, left *budget) string {
	ms, err := strconv.Atoi(rest)
	if err != nil || ms < 0 || ms > int(maxSleep/time.Millisecond) {
		return fmt.Sprintf(">>sleep takes 0 to %d milliseconds", maxSleep/time.Millisecond)
	}
	wait := time.Duration(ms) * time.Millisecond
	if !left.takeWait(wait) {
		return fmt.Sprintf("all sleeps together last at most %s", maxWait)
	}
	s.steps = append(s.steps, step{kind: stepSleep, wait: wait})
	return ""
}

func (s *script) addCall(rest string) string {
	tool, args, _ := strings.Cut(rest, " ")
	args = strings.TrimSpace(args)
	if tool == "" || !strings.HasPrefix(args, "{") || !json.Valid([]byte(args)) {
		return ">>call takes a tool id and a JSON object"
	}
	s.steps = append(s.steps, step{kind: stepCall, tool: tool, args: args})
	return ""
}

func (s *script) addBash(command string) string {
	if strings.TrimSpace(command) == "" {
		return ">>bash takes a command"
	}
	s.steps = append(s.steps, step{kind: stepBash, text: command})
	return ""
}

func (s *script) setUsage(rest string) string {
	fields := strings.Fields(rest)
	if len(fields) == 2 {
		in, errIn := strconv.Atoi(fields[0])
		out, errOut := strconv.Atoi(fields[1])
		if errIn == nil && errOut == nil && min(in, out) >= 0 && max(in, out) <= maxTokens {
			s.usage = &usage{in: in, out: out}
			return ""
		}
	}
	return fmt.Sprintf(">>usage takes two counts of 0 to %d", maxTokens)
}

func (s *script) addError(rest string) string {
	status, err := strconv.Atoi(rest)
	if err != nil || status < 400 || status > 599 {
		return ">>error takes a status of 400 to 599"
	}
	s.steps = append(s.steps, step{kind: stepError, status: status})
	return ""
}
