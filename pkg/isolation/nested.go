//go:build linux

package isolation

import (
	"errors"
	"io"
	"os"
)

// firstTree is the first of the descriptors that the launcher of a nested world inherits: the sources of its mounts in
// their order, but for those that have none. The one before is a pipe, whose other end closes when it is done.
const firstTree = 4

// startNested starts the nested world and returns when its program runs, or when it cannot: then the caller has heard
// why, and ends everything.
func (s *setup) startNested() error {
	if s.spec.Nested == nil {
		return nil
	}
	outer := len(s.spec.mounts())
	inherited, err := s.nestedTrees(outer)
	if err != nil {
		return err
	}
	done, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer done.Close()
	attr := &os.ProcAttr{
		Files: append([]*os.File{s.control.file, os.Stdout, os.Stderr, theirs}, inherited...),
		Env:   []string{}, Sys: nestedAttr(s.Without),
	}
	// The caller of Start is the one who waits: the process is this one's child when it has long become the program.
	child, err := os.StartProcess("/proc/self/exe", []string{"sandbox", roleNested}, attr)
	if err = errors.Join(err, theirs.Close(), closeFiles(inherited)); err != nil {
		return err
	}
	if err := child.Release(); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, done)
	return err
}

// nestedTrees gives the sources of the nested world's mounts. What comes from the outer world is opened here, where its
// root is made.
func (s *setup) nestedTrees(outer int) ([]*os.File, error) {
	var files []*os.File
	for i, m := range s.spec.Nested.mounts() {
		if m.Source == "" || s.without(MountNamespace) {
			continue
		}
		fd := -1
		if m.FromOuter {
			var err error
			if fd, err = m.open(s.Without); err != nil {
				return nil, errors.Join(failure(Nested, MountNamespace, "open "+m.Source+" of the outer world", err), closeFiles(files))
			}
		} else {
			fd = s.trees[outer+i]
		}
		files = append(files, os.NewFile(uintptr(fd), m.Source))
	}
	return files, nil
}

// inheritedTrees is the other side of nestedTrees.
func inheritedTrees(spec *Spec) []int {
	mounts := spec.mounts()
	trees := make([]int, 0, len(mounts))
	next := firstTree
	for _, m := range mounts {
		if m.Source == "" {
			trees = append(trees, -1)
			continue
		}
		trees = append(trees, next)
		next++
	}
	return trees
}

func closeFiles(files []*os.File) error {
	var errs []error
	for _, f := range files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
