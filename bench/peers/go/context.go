// SPDX-License-Identifier: Apache-2.0

package main

import "context"

func contextCancel(n int) {
	for i := 0; i < n; i++ {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if ctx.Err() == nil {
			panic("not cancelled")
		}
	}
}
