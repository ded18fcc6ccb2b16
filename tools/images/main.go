// Command images makes the container images of Cofferdam without a container
// engine, so that the same source gives the same digest wherever it is built.
//
//	images build  --output DIR [--key FILE] NAME...   images with their bills of materials, and their signatures
//	images pack   --program FILE --reference REF --archive FILE   one image of one program
//	images keygen --private FILE --public FILE        a key pair to sign with, for development
//	images sign   --key FILE --image REF --bundle FILE   a Sigstore bundle for an image's digest
//	images list                                       the names that build knows
//
// build runs at the root of the repository. For each image it leaves in DIR
//
//	NAME/               an OCI image layout: the image, its bill of materials and its signature as referrers
//	NAME.tar            the image alone, for `ctr images import`
//	NAME.cdx.json       the bill of materials (CycloneDX 1.6)
//	NAME.sigstore.json  the signature (Sigstore bundle v0.3), with --key
//
// and, when all are there, images.json. It prints a line `NAME REFERENCE` for each.
// What it says for people goes to stderr.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		return errors.New("usage: images build|pack|keygen|sign|list")
	}
	flags := flag.NewFlagSet("images "+args[0], flag.ContinueOnError)
	flags.SetOutput(stderr)
	switch args[0] {
	case "build":
		b := builder{progress: stderr}
		flags.StringVar(&b.source, "source", ".", "the root of the repository")
		flags.StringVar(&b.output, "output", "bin/oci", "the folder to write to")
		flags.StringVar(&b.repository, "repository", "localhost/cofferdam-", "what stands before the image's name in its reference")
		flags.StringVar(&b.keyFile, "key", "", "sign with this private key (PEM, mode 0600)")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		return b.build(ctx, flags.Args(), stdout)
	case "pack":
		program := flags.String("program", "", "the static program")
		reference := flags.String("reference", "", "the name and tag under which the archive is imported")
		archive := flags.String("archive", "", "the tar archive to write")
		if err := parseAll(flags, args[1:]); err != nil {
			return err
		}
		return pack(*program, *reference, *archive, stdout)
	case "keygen":
		private := flags.String("private", "", "where to write the private key (PEM, mode 0600)")
		public := flags.String("public", "", "where to write the public key (PEM)")
		if err := parseAll(flags, args[1:]); err != nil {
			return err
		}
		return keygen(*private, *public)
	case "sign":
		key := flags.String("key", "", "the private key (PEM, mode 0600)")
		image := flags.String("image", "", "the image: NAME@sha256:...")
		bundle := flags.String("bundle", "", "where to write the Sigstore bundle")
		if err := parseAll(flags, args[1:]); err != nil {
			return err
		}
		return signFile(*key, *image, *bundle)
	case "list":
		if err := parseAll(flags, args[1:]); err != nil {
			return err
		}
		for _, i := range images {
			if _, err := fmt.Fprintln(stdout, i.name); err != nil {
				return err
			}
		}
		return nil
	default:
		return fmt.Errorf("unknown command %q", args[0])
	}
}

// parseAll parses flags that must all be given, and no arguments.
func parseAll(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	var missing []error
	flags.VisitAll(func(f *flag.Flag) {
		if f.Value.String() == "" {
			missing = append(missing, fmt.Errorf("--%s is missing: %s", f.Name, f.Usage))
		}
	})
	return errors.Join(missing...)
}
