package cli

import (
	"flag"
	"fmt"

	"cofferdam.dev/deploy/local/internal/datadir"
	"cofferdam.dev/deploy/local/internal/stack"
)

func dataFlag(fs *flag.FlagSet, dir *string) {
	fs.StringVar(dir, "data", datadir.Default, "data `FOLDER`: keys, databases, logs, the sample files")
}

// startFlags are those of every command that starts the stack.
func startFlags(fs *flag.FlagSet, c *stack.Config, env Env) {
	fs.BoolVar(&c.AllowWeakIsolation, "allow-weak-isolation", false, "start although this machine does not allow all layers of isolation; those that are missing are named and left out")
	fs.StringVar(&c.BinDir, "bin-dir", env.BinDir, "`FOLDER` with the programs of the services (default the one of this program)")
	fs.StringVar(&c.Store, "store", "", "`DATABASE` of MongoDB for all but the contents of files, mongodb://USER@HOST/DATABASE without a password (default files of the data folder)")
	fs.StringVar(&c.StorePasswordFile, "store-password-file", "", "`FILE` with the password of the user in -store, mode 0600")
	fs.StringVar(&c.BlobURL, "blob-url", "", "`URL` of a bucket for the contents of files and large snapshots, s3://BUCKET?endpoint=https://HOST&region=REGION&path_style=true (default folders of the data folder)")
	fs.StringVar(&c.BlobCredentialsFile, "blob-credentials-file", "", "`FILE` with the credentials of that bucket in the form of AWS's shared credentials file, profile default, mode 0600")
	fs.IntVar(&c.MaxSandboxes, "max-sandboxes", stack.DefaultMaxSandboxes, fmt.Sprintf("how many sandboxes may live at once, the warm ones among them; 1 to %d", stack.MostSandboxes))
	fs.IntVar(&c.Warm, "warm", 0, "how many sandboxes are kept ready for conversations to come, at most --max-sandboxes; beside --sandbox-profiles each profile says it")
	fs.StringVar(&c.SandboxProfiles, "sandbox-profiles", "", "JSON `FILE` of sandbox profiles, {\"profiles\": […]}, in the place of the one named local")
	fs.StringVar(&c.OTLPEndpoint, "otlp-endpoint", "", "`URL` of an OTLP/HTTP collector for traces (default none)")
	fs.StringVar(&c.LogLevel, "log-level", "info", "of the services: debug, info, warn or error")
	if env.BinDir != "" {
		fs.Lookup("bin-dir").DefValue = ""
	}
}

// serveFlags are those of the commands that serve.
func serveFlags(fs *flag.FlagSet, c *stack.Config) {
	dataFlag(fs, &c.DataDir)
	fs.IntVar(&c.Replicas, "replicas", stack.DefaultReplicas, fmt.Sprintf("how many replicas of the control plane share the store and the sandboxes, each at an address of its own; 1 to %d", stack.MostReplicas))
	fs.DurationVar(&c.TakeOverAfter, "take-over-after", 0, "how long a replica must be silent before the others take its runs over, at most 10m (default that of the control plane, 10s)")
	fs.DurationVar(&c.IdleAfter, "idle-after", 0, "how long a sandbox may wait for the next turn before it is given back, and the conversation goes on in another one with an empty /workspace; 1s or more (default that of the control plane, 15m)")
	fs.StringVar(&c.Listen, "listen", stack.DefaultListen, "loopback `ADDRESS` of the public API; port 0 takes a free one")
	fs.StringVar(&c.OperatorListen, "operator-listen", "127.0.0.1:0", "loopback `ADDRESS` of the operators' API; port 0 takes a free one")
	fs.StringVar(&c.Model.BaseURL, "model-base-url", "", "`URL` of an endpoint with /chat/completions, in the place of the built-in demo model, on the wire openai_chat alone")
	fs.StringVar(&c.Model.Name, "model", "", "`NAME` of the model at that endpoint")
	fs.StringVar(&c.Model.KeyFile, "model-key-file", "", "`FILE` with the key of that endpoint; it is read for each call")
	fs.StringVar(&c.Agents, "agents", "", "JSON `FILE` of agents, {\"agents\": […]}, in the place of the agent demo; at most 1 MiB")
	fs.StringVar(&c.MCPConfig, "mcp-config", "", "JSON `FILE` of further MCP servers, {\"servers\": […]}; the agent demo gets their tools; at most 1 MiB")
}
