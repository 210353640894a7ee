// SPDX-License-Identifier: Apache-2.0

package main

import (
	"sync"
	"time"
)

func fibSequential(n int) int {
	if n < 2 {
		return n
	}
	return fibSequential(n-1) + fibSequential(n-2)
}

func fibForked(n int) int {
	if n <= 12 {
		return fibSequential(n)
	}
	left := make(chan int, 1)
	go func() { left <- fibForked(n - 1) }()
	right := fibForked(n - 2)
	return <-left + right
}

// fib(n), a goroutine for one of the two halves, in sequence from 12 down.
func fib(name string, n int) {
	expected := fibSequential(n)
	fibForked(n - 5)
	start := time.Now()
	if fibForked(n) != expected {
		panic("wrong")
	}
	report(name, float64(time.Since(start).Nanoseconds())/1e6, "ms")
}

type matrices struct {
	n       int
	a, b, c []float64
}

type span struct{ from, to int }

func (s span) size() int  { return s.to - s.from }
func (s span) low() span  { return span{s.from, s.from + s.size()/2} }
func (s span) high() span { return span{s.from + s.size()/2, s.to} }

func (m *matrices) multiply(rows, columns, sum span) {
	const least = 8
	switch {
	case rows.size() >= columns.size() && rows.size() >= sum.size() && rows.size() > least:
		var half sync.WaitGroup
		half.Go(func() { m.multiply(rows.low(), columns, sum) })
		m.multiply(rows.high(), columns, sum)
		half.Wait()
	case columns.size() >= sum.size() && columns.size() > least:
		var half sync.WaitGroup
		half.Go(func() { m.multiply(rows, columns.low(), sum) })
		m.multiply(rows, columns.high(), sum)
		half.Wait()
	case sum.size() > least:
		m.multiply(rows, columns, sum.low())
		m.multiply(rows, columns, sum.high())
	default:
		for i := rows.from; i < rows.to; i++ {
			c := m.c[i*m.n+columns.from : i*m.n+columns.to]
			for k := sum.from; k < sum.to; k++ {
				a, b := m.a[i*m.n+k], m.b[k*m.n+columns.from:k*m.n+columns.to]
				for j := range c {
					c[j] += a * b[j]
				}
			}
		}
	}
}

// The product of two n × n matrices, split in halves down to 8 × 8 × 8; the sum is split in sequence.
func matmul(name string, n int) {
	m := &matrices{n, make([]float64, n*n), make([]float64, n*n), make([]float64, n*n)}
	for i := range m.a {
		m.a[i], m.b[i], m.c[i] = 1, 2, 0
	}
	all := span{0, n}
	start := time.Now()
	m.multiply(all, all, all)
	report(name, float64(time.Since(start).Nanoseconds())/1e6, "ms")
	if m.c[0] != float64(2*n) || m.c[n*n-1] != m.c[0] {
		panic("wrong")
	}
}
