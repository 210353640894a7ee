// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net"
	"sync"
	"time"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A server in this process: 512 bytes there and back.
func echoServer() net.Listener {
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				var b [512]byte
				for {
					if _, err := io.ReadFull(c, b[:]); err != nil {
						return
					}
					c.Write(b[:])
				}
			}()
		}
	}()
	return l
}

func roundTrip(c net.Conn, timeout bool) {
	var b [512]byte
	if timeout {
		c.SetDeadline(time.Now().Add(time.Hour))
	}
	must(c.Write(b[:]))
	must(io.ReadFull(c, b[:]))
}

// A connection a turn.
func tcpOneshot(timeout bool) func(n int) {
	return func(n int) {
		l := echoServer()
		defer l.Close()
		parallelBy(2, n, func(turns int) {
			for range turns {
				c := must(net.Dial("tcp", l.Addr().String()))
				roundTrip(c, timeout)
				c.Close()
			}
		})
	}
}

func tcpPersistent(timeout bool) func(n int) {
	return func(n int) {
		l := echoServer()
		defer l.Close()
		parallelBy(2, n, func(turns int) {
			c := must(net.Dial("tcp", l.Addr().String()))
			defer c.Close()
			for range turns {
				roundTrip(c, timeout)
			}
		})
	}
}

func setReadDeadline(n int) {
	l := echoServer()
	defer l.Close()
	c := must(net.Dial("tcp", l.Addr().String()))
	defer c.Close()
	tp := time.Now().Add(time.Hour)
	for range n {
		c.SetReadDeadline(tp)
		tp = tp.Add(1)
	}
}

// At both ends a reader and a writer, a byte a time, and some work before each byte.
func tcpConcurrent(n int) {
	parallel(n, func(turns int) {
		l := must(net.Listen("tcp", "127.0.0.1:0"))
		defer l.Close()
		client := must(net.Dial("tcp", l.Addr().String()))
		defer client.Close()
		peer := must(l.Accept())
		defer peer.Close()
		between := make(chan byte, 128)
		var all sync.WaitGroup
		all.Go(func() {
			for range turns {
				work(1000)
				must(client.Write([]byte{0}))
			}
		})
		all.Go(func() {
			var b [1]byte
			for range turns {
				must(io.ReadFull(peer, b[:]))
				between <- b[0]
			}
		})
		all.Go(func() {
			for range turns {
				b := [1]byte{<-between}
				work(1000)
				must(peer.Write(b[:]))
			}
		})
		var b [1]byte
		for range turns {
			must(io.ReadFull(client, b[:]))
		}
		all.Wait()
	})
}
