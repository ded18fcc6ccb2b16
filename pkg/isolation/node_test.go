//go:build linux

package isolation_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam.dev/pkg/isolation"
)

// script is what agents do all day.
const script = `
const fs = require("fs"), cp = require("child_process"), net = require("net"), os = require("os");
const { Worker } = require("worker_threads");
fs.mkdirSync("/tmp/a"); fs.writeFileSync("/tmp/a/b", "file"); fs.renameSync("/tmp/a/b", "/tmp/c");
const said = [fs.readFileSync("/tmp/c", "utf8")];
said.push(cp.execFileSync(process.execPath, ["-e", "console.log('child')"]).toString().trim());
said.push(Object.keys(os.networkInterfaces()).join());
fs.watch("/tmp", () => {}).close();
new Worker("require('worker_threads').parentPort.postMessage('thread')", { eval: true }).once("message", (m) => {
  said.push(m);
  const server = net.createServer((c) => c.end("loopback")).listen(0, "127.0.0.1", () =>
    net.connect(server.address().port, "127.0.0.1").on("data", (d) => {
      console.log("reached " + said.concat(d.toString()).join(" "));
      process.exit(0);
    }));
});
`

// The profile of programs lets Node.js do what agents need: files, children, threads, watching, loopback, interfaces.
func TestNodeRuns(t *testing.T) {
	needs(t, isolation.Layers()...)
	node, err := exec.LookPath("node")
	if err == nil {
		node, err = filepath.EvalSymlinks(node)
	}
	if err != nil {
		t.Fatalf("node is needed, as for other tests: %v", err)
	}
	spec := nested("agent", "", "raise", "/bin/node", "-e", script)
	n := spec.Nested
	n.Mounts = append(n.Mounts, isolation.Mount{Target: "/bin/node", Source: node, ReadOnly: true})
	n.Access.ReadOnly = append(n.Access.ReadOnly, "/bin/node")
	for _, dir := range []string{"/lib", "/lib64", "/usr/lib"} { // what it is linked with
		if _, err := filepath.EvalSymlinks(dir); err != nil {
			continue
		}
		n.Mounts = append(n.Mounts, isolation.Mount{Target: dir, Source: dir, ReadOnly: true})
		n.Access.ReadOnly = append(n.Access.ReadOnly, dir)
	}
	n.Limits = isolation.Limits{Processes: 256, OpenFiles: 1024}
	reached, detail := attempt(t, spec)
	if want := "file child lo thread loopback"; !reached || strings.TrimSpace(detail) != want {
		t.Errorf("Node.js said %q, want %q", detail, want)
	}
}
