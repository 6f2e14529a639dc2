// Package heap keeps elements in an order that may change, so that the first one is at hand.
package heap

import (
	"container/heap"
	"iter"
	"slices"
)

// Order orders the elements of a heap. Its zero value is used.
type Order[T any] interface {
	// Before reports whether a comes before b.
	Before(a, b T) bool
	// Place returns where an element notes its place in the heap: zero if it is not in it. It returns nil if
	// elements do not; Heap.Keep then cannot be called.
	Place(x T) *int
}

// Heap is a heap of elements. The zero value is empty. A change takes logarithmic time.
type Heap[T any, O Order[T]] struct{ elements elements[T, O] }

// Len returns the number of elements.
func (h *Heap[T, O]) Len() int { return len(h.elements) }

// First returns the first element. The heap must not be empty.
func (h *Heap[T, O]) First() T { return h.elements[0] }

// All yields the elements in no order. The heap must not change meanwhile.
func (h *Heap[T, O]) All() iter.Seq[T] { return slices.Values(h.elements) }

// Push adds an element.
func (h *Heap[T, O]) Push(x T) { heap.Push(&h.elements, x) }

// Pop removes the first element and returns it. The heap must not be empty.
func (h *Heap[T, O]) Pop() T { return heap.Pop(&h.elements).(T) }

// ReplaceFirst replaces the first element, and puts the other where it belongs. The heap must not be empty.
func (h *Heap[T, O]) ReplaceFirst(by T) {
	h.elements.note(0, 0)
	h.elements[0] = by
	h.elements.note(0, 1)
	heap.Fix(&h.elements, 0)
}

// Keep adds an element or, if the heap has it, puts it where it belongs after a change. If in is false, the
// element is removed, if it is there.
func (h *Heap[T, O]) Keep(x T, in bool) {
	var order O
	switch at := *order.Place(x) - 1; {
	case in && at < 0:
		h.Push(x)
	case in:
		heap.Fix(&h.elements, at)
	case at >= 0:
		heap.Remove(&h.elements, at)
	}
}

// elements are the elements of a heap, for package container/heap.
type elements[T any, O Order[T]] []T

func (e elements[T, O]) Len() int { return len(e) }

func (e elements[T, O]) Less(i, j int) bool {
	var order O
	return order.Before(e[i], e[j])
}

func (e elements[T, O]) Swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e.note(i, i+1)
	e.note(j, j+1)
}

func (e *elements[T, O]) Push(x any) {
	*e = append(*e, x.(T))
	e.note(len(*e)-1, len(*e))
}

func (e *elements[T, O]) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	e.note(last, 0)
	clear((*e)[last:]) // for the garbage collector
	*e = (*e)[:last]
	return x
}

// note notes the place of an element. A place is an index plus one.
func (e elements[T, O]) note(i, place int) {
	var order O
	if at := order.Place(e[i]); at != nil {
		*at = place
	}
}
