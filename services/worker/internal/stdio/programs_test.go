package stdio

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// programs are what a harness can be, from a good one to those that nobody wants.
func programs() map[string]func(*program) {
	const open = `{"type":"event","event":{"type":"text.started","data":{"message_id":"m","role":"assistant"}}}`
	forever := func() { select {} }
	after := func(lines ...string) func(*program) {
		return func(p *program) {
			p.begin()
			for _, l := range lines {
				p.say("%s", l)
			}
			forever()
		}
	}
	call := func(p *program, id, tool, args string) request {
		p.say(`{"type":"tool_call","tool_call_id":%q,"tool_id":%q,"arguments":%s}`, id, tool, args)
		return p.read()
	}
	return map[string]func(*program){
		"good": func(p *program) {
			r := p.begin()
			p.text("You said " + r.Message + " after " + string(r.State))
			p.commit(string(r.State) + r.Message + ";")
		},
		"calls": func(p *program) {
			p.begin()
			r := call(p, "c1", "fs.read", `{"path":"a"}`)
			p.text(fmt.Sprintf("%s %s %v", r.ToolCallID, r.Result, r.Error))
			p.commit("")
		},
		"parallel": func(p *program) {
			p.begin()
			for n := range 4 {
				p.say(`{"type":"tool_call","tool_call_id":"c%d","tool_id":"fs.read","arguments":{"n":%d}}`, n, n)
			}
			seen := map[string]bool{}
			for range 4 {
				seen[p.read().ToolCallID] = true
			}
			p.text(fmt.Sprint(len(seen)))
			p.commit("")
		},
		"many calls": func(p *program) {
			p.begin()
			last := ""
			for n := range 12 {
				if r := call(p, fmt.Sprint("c", n), "fs.read", `{}`); r.Error != nil {
					last = string(r.Error.Code)
				}
			}
			p.text(last)
			p.commit("")
		},
		"unknown tool": func(p *program) {
			p.begin()
			p.text(string(call(p, "c1", "fs.format", `{}`).Error.Code))
			p.commit("")
		},
		"memory": func(p *program) {
			p.begin()
			ask := func(format string, args ...any) request { p.say(format, args...); return p.read() }
			a := ask(`{"type":"memory_get","id":"q1","scope":"user","key":"k"}`)
			b := ask(`{"type":"memory_put","id":"q2","scope":"user","key":"k","kind":"semantic","content_type":"text/plain","content":"kept","expected_revision":0}`)
			c := ask(`{"type":"memory_get","id":"q3","scope":"user","key":"k"}`)
			d := ask(`{"type":"memory_get","id":"q4","scope":"organization","key":"k"}`)
			p.text(fmt.Sprint(a.Error.Code, " ", b.Revision, " ", c.Record.Content, " ", d.Error.Code))
			p.commit("")
		},
		"files": func(p *program) {
			r := p.begin()
			p.say(`{"type":"upload","id":"u1","name":"a.txt","mime_type":"text/plain","data":"aGVsbG8="}`)
			a := p.read()
			p.say(`{"type":"upload","id":"u2","name":"b.txt","mime_type":"text/plain","data":"aGVsbG8="}`)
			b := p.read()
			home, err := os.ReadFile(os.Getenv("HOME") + "/.config/agent")
			p.text(fmt.Sprint(r.Files[0].Path, " ", r.Files[0].Size, " ", a.ObjectID, " ", b.Error.Code, " ", string(home), err))
			p.commit("")
		},
		"manifests": func(p *program) {
			p.begin()
			const skill, other = "skills/one/SKILL.md", "files/a.csv"
			had, err := os.ReadFile(skill)
			said := fmt.Sprint(string(had), err)
			for _, forbidden := range []error{
				os.WriteFile(skill, []byte("changed"), 0o600), os.Remove(skill), os.Rename("skills/one", "skills/moved"), os.RemoveAll("files"), os.Chmod(skill, 0o600),
			} {
				said += fmt.Sprint(" ", errors.Is(forbidden, os.ErrPermission))
			}
			had, err = os.ReadFile(other)
			said = fmt.Sprint(said, " ", string(had), err)
			moved := os.Rename("skills", fmt.Sprint("moved-", os.Getpid())) // the workspace is the program's
			p.text(fmt.Sprint(said, " ", moved))
			p.commit("")
		},
		"large state": func(p *program) {
			r := p.begin()
			for range 4 {
				p.say(`{"type":"state","data":%q}`, strings.Repeat("QUFB", 16<<10)) // 48 KiB each
			}
			p.text(fmt.Sprint(len(r.State)))
			p.commit("end")
		},
		"too large a state": func(p *program) {
			p.begin()
			for range 8 {
				p.say(`{"type":"state","data":%q}`, strings.Repeat("QUFB", 50<<10))
			}
			forever()
		},
		"asks approval": func(p *program) {
			r := p.begin()
			if r.Type == "turn" {
				p.text("May I?")
				p.say(`{"type":"interrupt","state":"c3RhdGU=","approvals":[{"tool_call_id":"c1","tool_id":"fs.write","arguments":{"n":1}},` +
					`{"tool_call_id":"c2","tool_id":"fs.write","arguments":{"n":2},"allowed_decisions":["approve","reject"]}]}`)
				return
			}
			said := string(r.State)
			for _, d := range r.Decision.Tools {
				if d.Decision != "reject" {
					p.say(`{"type":"tool_call","tool_call_id":%q,"tool_id":"fs.write"}`, d.ToolCallID)
					said += " " + string(p.read().Result)
				}
			}
			p.text(fmt.Sprint(said, " ", r.Decision.Dismissed))
			p.commit("")
		},
		"calls something else than what was approved": func(p *program) {
			r := p.begin()
			p.say(`{"type":"tool_call","tool_call_id":%q,"tool_id":"fs.write","arguments":{"n":99}}`, r.Decision.Tools[0].ToolCallID)
			forever()
		},
		"asks a form": func(p *program) {
			r := p.begin()
			if r.Type == "turn" {
				p.say(`{"type":"interrupt","state":"","form":{"prompt":"Which?","fields":[{"field_name":"region","field_type":"text","required":true}]}}`)
				return
			}
			p.text(string(r.Decision.Form))
			p.commit("")
		},
		"own tool": func(p *program) {
			p.begin()
			p.say(`{"type":"event","event":{"type":"tool.started","data":{"tool_call_id":"own","tool_name":"builtin.think","arguments":{}}}}`)
			p.say(`{"type":"event","event":{"type":"namespace.entered","namespace":["helper"],"data":{"agent_id":"helper","agent_name":"Helper","parent_tool_call_id":"own"}}}`)
			p.say(`{"type":"tool_call","tool_call_id":"c1","tool_id":"fs.read","arguments":{},"namespace":["helper"]}`)
			p.read()
			p.say(`{"type":"event","event":{"type":"namespace.exited","namespace":["helper"],"data":{"agent_id":"helper","parent_tool_call_id":"own","outcome":"success"}}}`)
			p.say(`{"type":"event","event":{"type":"tool.finished","data":{"tool_call_id":"own","result":"done"}}}`)
			p.commit("")
		},
		"fails":               after(`{"type":"error","code":"rate_limited","retry_after_seconds":7}`),
		"fails as it pleases": after(`{"type":"error","code":"stale_lease"}`),
		"logs": func(p *program) {
			p.begin()
			_, _ = os.Stderr.WriteString("raw standard error\n")
			p.say(`{"type":"log","text":"it works"}`)
			p.commit("")
		},

		"garbage":                 after("not JSON at all \x01"),
		"garbage before ready":    func(p *program) { p.write("Welcome to my agent!\n"); forever() },
		"not UTF-8":               after("{\"type\":\"log\",\"text\":\"\xff\xfe\"}"),
		"NUL":                     after("\x00\x00\x00"),
		"empty line":              after(""),
		"two on a line":           after(`{"type":"log","text":"a"}{"type":"log","text":"b"}`),
		"key twice":               after(`{"type":"log","text":"a","text":"b"}`),
		"unknown field":           after(`{"type":"log","text":"a","sequence":7}`),
		"unknown type":            after(`{"type":"run.finished"}`),
		"no type":                 after(`{}`),
		"deep":                    after(strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000)),
		"sequence in a draft":     after(`{"type":"event","event":{"type":"text.started","sequence":1,"data":{"message_id":"m","role":"assistant"}}}`),
		"terminal draft":          after(`{"type":"event","event":{"type":"run.finished","data":{"outcome":"success","stop_reason":"stop"}}}`),
		"run.started draft":       after(`{"type":"event","event":{"type":"run.started","data":{"harness_id":"native","adapter_version":"1"}}}`),
		"interrupt draft":         after(`{"type":"event","event":{"type":"interrupt.requested","data":{"interrupt_id":"i","interrupt_type":"form_input","agent_id":"a","prompt":"p","fields":[{"field_name":"f","field_type":"text","required":true}]}}}`),
		"made up call":            after(`{"type":"event","event":{"type":"tool.started","data":{"tool_call_id":"c1","tool_name":"fs.read","arguments":{}}}}`),
		"made up result":          after(`{"type":"tool_call","tool_call_id":"c1","tool_id":"fs.read","arguments":{}}`, `{"type":"event","event":{"type":"tool.finished","data":{"tool_call_id":"c1","result":1}}}`),
		"result of nothing":       after(`{"type":"event","event":{"type":"tool.finished","data":{"tool_call_id":"c9","result":1}}}`),
		"call under one id twice": after(`{"type":"tool_call","tool_call_id":"c1","tool_id":"fs.read","arguments":{}}`, `{"type":"tool_call","tool_call_id":"c1","tool_id":"fs.read","arguments":{}}`),
		"call without arguments":  after(`{"type":"tool_call","tool_call_id":"c1","tool_id":"fs.read"}`),
		"arguments in two cases":  after(`{"type":"tool_call","tool_call_id":"c1","tool_id":"fs.read","arguments":{"path":"a","Path":"b"}}`),
		"arguments are a list":    after(`{"type":"tool_call","tool_call_id":"c1","tool_id":"fs.read","arguments":[]}`),
		"reordered":               after(`{"type":"event","event":{"type":"text.delta","data":{"message_id":"m","delta":"x"}}}`, open),
		"open at the end":         after(open, `{"type":"commit","state":"","stop_reason":"stop"}`),
		"ready twice":             after(`{"type":"ready","protocol":1}`),
		"another protocol":        func(p *program) { p.say(`{"type":"ready","protocol":2}`); forever() },
		"talks before ready":      func(p *program) { p.say(open); forever() },
		"long line":               func(p *program) { p.begin(); p.write(strings.Repeat("x", 2<<20)); forever() },
		"long line with an end":   func(p *program) { p.begin(); p.say("%s", strings.Repeat("x", 1<<20+1)); forever() },
		"endless line":            func(p *program) { p.begin(); endless(p, strings.Repeat("x", 64<<10)) },
		"flood of logs":           func(p *program) { p.begin(); endless(p, strings.Repeat(`{"type":"log","text":"again"}`+"\n", 1000)) },
		"flood of nothing": func(p *program) {
			p.begin()
			p.say(open)
			endless(p, strings.Repeat(`{"type":"event","event":{"type":"text.delta","data":{"message_id":"m","delta":""}}}`+"\n", 1000))
		},
		"flood of events": func(p *program) {
			p.begin()
			p.say(open)
			endless(p, strings.Repeat(`{"type":"event","event":{"type":"text.delta","data":{"message_id":"m","delta":"x"}}}`+"\n", 1000))
		},
		"garbage after the commit": func(p *program) { p.begin(); p.commit(""); p.say("and another thing") },
		"event after the commit":   func(p *program) { p.begin(); p.commit(""); p.text("more") },
		"commit twice":             func(p *program) { p.begin(); p.commit("a"); p.commit("b") },
		"commit with a call":       after(`{"type":"tool_call","tool_call_id":"slow","tool_id":"fs.read","arguments":{}}`, `{"type":"commit","state":"","stop_reason":"stop"}`),
		"interrupt of both kinds": func(p *program) {
			p.begin()
			p.say(`{"type":"interrupt","state":"","form":{"prompt":"p","fields":[{"field_name":"f","field_type":"text","required":true}]},"approvals":[{"tool_call_id":"c1","tool_id":"fs.write","arguments":{}}]}`)
		},
		"asks about other arguments": func(p *program) {
			p.begin()
			p.say(`{"type":"event","event":{"type":"tool.started","data":{"tool_call_id":"own","tool_name":"builtin.rm","arguments":{"path":"a"}}}}`)
			p.say(`{"type":"interrupt","state":"","approvals":[{"tool_call_id":"own","tool_id":"builtin.rm","arguments":{"path":"b"}}]}`)
		},
		"asks about its own call": func(p *program) {
			p.begin()
			p.say(`{"type":"event","event":{"type":"tool.started","data":{"tool_call_id":"own","tool_name":"builtin.rm","arguments":{"path":"a","n":1}}}}`)
			p.say(`{"type":"interrupt","state":"","approvals":[{"tool_call_id":"own","tool_id":"builtin.rm","arguments":{"n": 1,"path":"a"}}]}`)
		},
		"interrupt of nothing": func(p *program) { p.begin(); p.say(`{"type":"interrupt","state":""}`) },
		"bad interrupt":        func(p *program) { p.begin(); p.say(`{"type":"interrupt","state":"","form":{"prompt":"","fields":[]}}`) },

		"exits at once":     func(*program) {},
		"exits after ready": func(p *program) { p.say(`{"type":"ready","protocol":1}`) },
		"exits in its text": func(p *program) { p.begin(); p.say(open); p.delta("half") },
		"exits in a line":   func(p *program) { p.begin(); p.write(`{"type":"commit","sta`) },
		"exits in a call": func(p *program) {
			p.begin()
			p.say(`{"type":"tool_call","tool_call_id":"slow","tool_id":"fs.read","arguments":{}}`)
		},
		"closes its output":       func(p *program) { p.begin(); _ = os.Stdout.Close(); forever() },
		"closes its input":        func(p *program) { _ = os.Stdin.Close(); p.say(`{"type":"ready","protocol":1}`); p.commit("") },
		"never ready":             func(*program) { forever() },
		"silent":                  func(p *program) { p.begin(); forever() },
		"silent in its text":      after(open),
		"silent after the commit": func(p *program) { p.begin(); p.text("done"); p.commit("kept"); ignoreSignals(); forever() },
		"does not read": func(p *program) {
			p.say(`{"type":"ready","protocol":1}`)
			for n := range 8 {
				p.say(`{"type":"tool_call","tool_call_id":"c%d","tool_id":"fs.read","arguments":{}}`, n)
			}
			forever()
		},
		"ignores cancel": func(p *program) {
			ignoreSignals()
			p.begin()
			p.say(open)
			for {
				p.delta("still here")
				time.Sleep(time.Millisecond) //nolint:forbidigo // this process is the program
			}
		},
		"ends on cancel": func(p *program) {
			p.begin()
			p.say(open)
			if p.read().Type == "cancel" {
				_ = os.WriteFile(os.Getenv("HOME")+"/cancelled", nil, 0o600)
			}
		},
		"leaves a child": func(p *program) {
			p.begin()
			child()
			p.text("done")
			p.commit("kept")
		},
		"leaves a child and ends": func(p *program) {
			p.begin()
			child()
		},
	}
}

func endless(p *program, text string) {
	for {
		p.write(text)
	}
}

func ignoreSignals() { signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP) }

// child starts a process in a session of its own, which keeps the output open.
func child() {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	c := exec.Command(self) //nolint:noctx // it outlives whoever started it
	c.Env = append(os.Environ(), programEnv+"=never ready")
	c.Stdout = os.Stdout
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		panic(err)
	}
}
