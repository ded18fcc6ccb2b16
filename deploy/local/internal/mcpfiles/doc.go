// Package mcpfiles is an MCP server that lets a client list and read the files
// of one folder and do nothing else.
//
// It is the sample server of the one-machine stack, and it is written for a
// client that is steered by a model: a path is a wish, not an instruction. Every
// access goes through an os.Root, so that neither "..", nor an absolute path, nor
// a symbolic link, nor a link that is put there between check and use, leads out
// of the folder (CVE-2025-53109 and CVE-2025-53110 are what happens otherwise).
// Nothing can be written, and only regular files are opened.
//
// Names, arguments and the text of results are those of the tools of the same
// name in the reference server @modelcontextprotocol/server-filesystem; paths,
// however, are relative to the folder, whose place on the machine is nobody's
// business.
package mcpfiles
