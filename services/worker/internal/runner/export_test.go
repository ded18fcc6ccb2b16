//go:build linux

package runner

// For tests of what a program's standard error may fill.
var LogLines = logLines

// LinesASecond that a program may write into the log.
const LinesASecond = linesASpell
