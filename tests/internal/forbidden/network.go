package forbidden

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

// Requests of ioctl(2) that change an interface; see netdevice(7).
const (
	setAddress = 0x8916
	setFlags   = 0x8914
)

// interfaceRequest is struct ifreq: a name, and whatever the request takes.
type interfaceRequest struct {
	name  [syscall.IFNAMSIZ]byte
	value [24]byte
}

// Loopback brings the loopback interface up and puts addresses on it.
func Loopback(on ...netip.Addr) error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Close(fd) }()
	up := interfaceRequest{}
	copy(up.name[:], "lo")
	binary.NativeEndian.PutUint16(up.value[:], syscall.IFF_UP|syscall.IFF_RUNNING)
	if err := ioctl(fd, setFlags, &up); err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	for i, address := range on {
		r := interfaceRequest{}
		copy(r.name[:], fmt.Sprintf("lo:%d", i+1))
		binary.NativeEndian.PutUint16(r.value[:], syscall.AF_INET)
		ip := address.As4()
		copy(r.value[4:], ip[:]) // behind family and port
		if err := ioctl(fd, setAddress, &r); err != nil {
			return fmt.Errorf("address %s: %w", address, err)
		}
	}
	return nil
}

func ioctl(fd int, request uintptr, r *interfaceRequest) error {
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(r))); errno != 0 { //nolint:gosec // the kernel's own layout
		return errno
	}
	return nil
}

// EnterNetwork starts this program again in a network namespace that has nothing
// but a loopback, with all the addresses of what is not to be reached on it. The environment
// variable is 1 there. It returns only where that fails.
func EnterNetwork(variable string) error {
	runtime.LockOSThread() // execve keeps the namespaces of the thread that calls it
	if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := Loopback(Addresses()...); err != nil {
		return err
	}
	return syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), variable+"=1"))
}
