// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net"
	"sync"
)

const message = 64

// n round trips in all, over conns connections at once.
func echo(conns int) func(n int) {
	return func(n int) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		defer l.Close()
		var all sync.WaitGroup
		for range conns {
			client, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				panic(err)
			}
			server, err := l.Accept()
			if err != nil {
				panic(err)
			}
			all.Add(2)
			go func() {
				defer all.Done()
				defer client.Close()
				var b [message]byte
				for range n / conns {
					client.Write(b[:])
					io.ReadFull(client, b[:])
				}
			}()
			go func() {
				defer all.Done()
				defer server.Close()
				var b [message]byte
				for {
					if _, err := io.ReadFull(server, b[:]); err != nil {
						return
					}
					server.Write(b[:])
				}
			}()
		}
		all.Wait()
	}
}
