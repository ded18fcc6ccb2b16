package agentfiles_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"cofferdam.dev/services/controlplane/internal/agentfiles"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// folder has files by path; what ends in "/" is a folder, and a content that begins with
// "-> " a link.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		at := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(at), 0o700))
		to, link := strings.CutPrefix(content, "-> ")
		switch {
		case link:
			must(t, os.Symlink(to, at))
		case strings.HasSuffix(name, "/"):
			must(t, os.MkdirAll(at, 0o700))
		default:
			must(t, os.WriteFile(at, []byte(content), 0o600))
		}
	}
	return dir
}

func sum(content string) string {
	s := sha256.Sum256([]byte(content))
	return hex.EncodeToString(s[:])
}

// told is what was found, which can be opened and is what it says.
func told(t *testing.T, f agentfiles.Folder, found []agentfiles.Found) (out []string) {
	t.Helper()
	for _, one := range found {
		r, err := f.Open(one)
		must(t, err)
		content, err := io.ReadAll(r)
		must(t, errors.Join(err, r.Close()))
		if sum(string(content)) != one.SHA256 || int64(len(content)) != one.Size || one.Content().Size != one.Size || fmt.Sprintf("%x", one.Content().SHA256) != one.SHA256 {
			t.Errorf("%s is opened as %q", one.Path, content)
		}
		out = append(out, one.Path+" "+one.MIMEType)
	}
	return out
}

func TestSkillsAndFiles(t *testing.T) {
	f := agentfiles.In(folder(t, map[string]string{
		"skills/pdf/SKILL.md": "a skill", "skills/pdf/scripts/run.py": "a script", "skills/pdf/.git/config": "hidden", "skills/pdf/.DS_Store": "hidden", "skills/pdf/empty/": "",
		"greeting/SKILL.md": "another", "doc/handbook.txt": "text", "templates/a/b": "\x00\x01", "templates/c": "größer", "templates/d": "",
		"long": strings.Repeat("a", 511) + "ö and more", "link": "-> doc/handbook.txt",
	}))
	skills, err := f.Skills([]string{"skills/pdf", "./greeting/"})
	must(t, err)
	if got := told(t, f, skills); !slices.Equal(got, []string{"pdf/SKILL.md text/markdown", "pdf/scripts/run.py text/x-python", "greeting/SKILL.md text/markdown"}) {
		t.Errorf("skills: %q", got)
	}
	files, err := f.Files([]string{"doc/handbook.txt", "templates", "long", "link"})
	must(t, err)
	if got := told(t, f, files); !slices.Equal(got, []string{
		"handbook.txt text/plain", "templates/a/b application/octet-stream", "templates/c text/plain", "templates/d text/plain", "long text/plain", "link text/plain",
	}) {
		t.Errorf("files: %q", got)
	}
	var named []agentfiles.File
	for _, s := range skills {
		named = append(named, s.File)
	}
	must(t, agentfiles.Check(named, nil))
	if none, err := f.Skills(nil); err != nil || none != nil {
		t.Errorf("of nothing: %v, %v", none, err)
	}
}

// A volume of Kubernetes shows each file through two links.
func TestAMountedVolume(t *testing.T) {
	f := agentfiles.In(folder(t, map[string]string{
		"flat/..2026_11_30/SKILL.md": "a skill", "flat/..data": "-> ..2026_11_30", "flat/SKILL.md": "-> ..data/SKILL.md",
		"..2026_11_30/deep/SKILL.md": "a skill", "..2026_11_30/deep/scripts/run.py": "a script", "..data": "-> ..2026_11_30", "deep": "-> ..data/deep",
		"..2026_11_30/skills/in/SKILL.md": "a third", "skills": "-> ..data/skills",
	}))
	found, err := f.Skills([]string{"flat", "deep", "skills/in"})
	must(t, err)
	if got := told(t, f, found); !slices.Equal(got, []string{"flat/SKILL.md text/markdown", "deep/SKILL.md text/markdown", "deep/scripts/run.py text/x-python", "in/SKILL.md text/markdown"}) {
		t.Errorf("got %q", got)
	}
}

// What cannot be taken is told by its field, and with what to do.
func TestWhatIsRefused(t *testing.T) {
	outside := folder(t, map[string]string{"secret": "secret", "folder/SKILL.md": "secret"})
	files := map[string]string{
		"s/SKILL.md": "x", "t/S/SKILL.md": "x", "none/readme.md": "x", "plain": "x", "beside": "x", "many/SKILL.md": "x",
		"out/SKILL.md": "-> " + outside + "/secret", "up/SKILL.md": "-> ../beside", "loop/SKILL.md": "-> SKILL.md", "broken/SKILL.md": "-> nowhere",
		"dirlink/SKILL.md": "x", "dirlink/sub": "-> real", "dirlink/real/x": "x", "leads": "-> " + outside + "/folder", "leads-file": "-> " + outside + "/secret",
		"space/SKILL.md": "x", "space/my file.md": "x", "deep/1/2/3/4/5/6/7/f": "x", "deepest/1/2/3/4/5/6/f": "x", "bad name/SKILL.md": "x", "large/SKILL.md": "x", "pipe/SKILL.md": "x",
	}
	for n := range agentfiles.MaxFiles {
		files[fmt.Sprintf("many/f%d", n)] = "x"
	}
	dir := folder(t, files)
	must(t, os.Truncate(filepath.Join(dir, "large/SKILL.md"), agentfiles.MaxFileBytes+1))
	must(t, syscall.Mkfifo(filepath.Join(dir, "pipe/data"), 0o600))
	f := agentfiles.In(dir)
	if found, err := f.Files([]string{"deepest"}); err != nil || len(found) != 1 {
		t.Errorf("eight names: %v, %v", found, err)
	}
	const outward = "no link may lead out"
	for name, c := range map[string]struct {
		read    func([]string) ([]agentfiles.Found, error)
		entries []string
		want    []string
	}{
		"not there":             {f.Skills, []string{"s", "absent"}, []string{`skills[1]: there is no "absent"`}},
		"a file as a skill":     {f.Skills, []string{"plain"}, []string{"skills[0]: ", "a skill is a folder with a SKILL.md"}},
		"no SKILL.md":           {f.Skills, []string{"none"}, []string{"skills[0]: ", "has no SKILL.md"}},
		"absolute":              {f.Files, []string{dir + "/plain"}, []string{"files[0]: ", "no path within the folder"}},
		"up":                    {f.Files, []string{"../secret"}, []string{"files[0]: ", "no path within the folder"}},
		"up and down":           {f.Files, []string{"s/../../" + filepath.Base(dir) + "/plain"}, []string{"files[0]: ", "no path within the folder"}},
		"everything":            {f.Files, []string{"."}, []string{"files[0]: ", "no path within the folder"}},
		"empty":                 {f.Files, []string{""}, []string{"files[0]: ", "no path within the folder"}},
		"a link out":            {f.Skills, []string{"out"}, []string{"skills[0]: ", outward}},
		"a link out of it":      {f.Skills, []string{"up"}, []string{"skills[0]: ", outward}},
		"a link to itself":      {f.Skills, []string{"loop"}, []string{"skills[0]: "}},
		"a link to nothing":     {f.Skills, []string{"broken"}, []string{`skills[0]: there is no "`}},
		"a link to a folder":    {f.Skills, []string{"dirlink"}, []string{"skills[0]: ", `"dirlink/sub" is a link to a folder`}},
		"an entry that leads":   {f.Skills, []string{"leads"}, []string{"skills[0]: ", outward}},
		"a file that leads":     {f.Files, []string{"leads-file"}, []string{"files[0]: ", outward}},
		"a name with a space":   {f.Skills, []string{"space"}, []string{"skills[0]: ", `"space/my file.md"`, "rename it"}},
		"an entry with a space": {f.Skills, []string{"bad name"}, []string{"skills[0]: ", `"bad name"`, "rename it"}},
		"too deep":              {f.Files, []string{"deep"}, []string{"files[0]: ", `"deep/1/2/3/4/5/6/7/f"`, "at most 8 names"}},
		"too large":             {f.Skills, []string{"large"}, []string{"skills[0]: ", `"large/SKILL.md" has 8388609 bytes`, "8 MiB"}},
		"a pipe":                {f.Skills, []string{"pipe"}, []string{"skills[0]: ", `"pipe/data" is no regular file`}},
		"too many":              {f.Skills, []string{"many"}, []string{"skills[0]: ", "more than 256 files"}},
		"too many together":     {f.Files, []string{"s", "many"}, []string{"files[1]: ", "more than 256 files"}},
		"two of one name":       {f.Skills, []string{"s", "t/S"}, []string{"skills[1]: ", "another entry"}},
		"everything is told":    {f.Skills, []string{"absent", "none", "s"}, []string{"skills[0]: ", "skills[1]: "}},
		"a folder that is gone": {agentfiles.In(dir + "/absent").Skills, []string{"s"}, []string{"skills: "}},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := c.read(c.entries)
			if err == nil || found != nil {
				t.Fatalf("got %+v, %v", found, err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is missing in: %v", want, err)
				}
			}
		})
	}
}

// What is named in a version is checked as what is found in a folder.
func TestCheck(t *testing.T) {
	file := func(path string) agentfiles.File {
		return agentfiles.File{Path: path, SHA256: sum(path), Size: 1, MIMEType: "text/plain"}
	}
	with := func(change func(*agentfiles.File)) []agentfiles.File {
		f := file("a/b")
		change(&f)
		return []agentfiles.File{f}
	}
	var heavy []agentfiles.File
	for n := range 9 {
		f := file(fmt.Sprintf("f%d", n))
		f.Size = agentfiles.MaxFileBytes
		heavy = append(heavy, f)
	}
	many := slices.Repeat([]agentfiles.File{file("a")}, agentfiles.MaxFiles+1)
	for name, c := range map[string]struct {
		skills, files []agentfiles.File
		want          string
	}{
		"up":              {nil, with(func(f *agentfiles.File) { f.Path = "../a" }), "files[0].path: "},
		"hidden":          {nil, with(func(f *agentfiles.File) { f.Path = "a/.b" }), "files[0].path: "},
		"absolute":        {nil, with(func(f *agentfiles.File) { f.Path = "/a" }), "files[0].path: "},
		"deep":            {nil, with(func(f *agentfiles.File) { f.Path = strings.Repeat("a/", 8) + "a" }), "files[0].path: "},
		"twice":           {nil, []agentfiles.File{file("a/R"), file("A/r")}, "files[1].path: "},
		"a folder":        {nil, []agentfiles.File{file("a/b"), file("a")}, "files[1].path: "},
		"within a file":   {nil, []agentfiles.File{file("a"), file("a/b")}, "files[1].path: "},
		"a short digest":  {with(func(f *agentfiles.File) { f.SHA256 = f.SHA256[1:] }), nil, "skills[0].sha256: "},
		"upper case":      {with(func(f *agentfiles.File) { f.SHA256 = strings.ToUpper(f.SHA256) }), nil, "skills[0].sha256: "},
		"negative":        {with(func(f *agentfiles.File) { f.Size = -1 }), nil, "skills[0].size: "},
		"large":           {with(func(f *agentfiles.File) { f.Size = agentfiles.MaxFileBytes + 1 }), nil, "skills[0].size: "},
		"a type":          {with(func(f *agentfiles.File) { f.MIMEType = "text" }), nil, "skills[0].mime_type: "},
		"no skill":        {[]agentfiles.File{file("SKILL.md")}, nil, "skills[0].path: "},
		"too many":        {nil, many, "files: 257 files, at most 256"},
		"heavy together":  {nil, heavy, "skills, files: "},
		"and in two ways": {[]agentfiles.File{{Path: "a/SKILL.md", SHA256: sum("a"), Size: 1}}, heavy[:8], "skills, files: "},
	} {
		if err := agentfiles.Check(c.skills, c.files); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	good := []agentfiles.File{file("pdf/SKILL.md"), file("pdf/a/b")}
	must(t, agentfiles.Check(good, append(heavy[:7:7], good...)))
	must(t, agentfiles.Check(nil, nil))
}
