package conn

import "time"

// A Subscriber wants the messages of a channel. Its methods are called on the reader of a connection, or in the
// background; no lock of the connections is held.
type Subscriber interface {
	// Channel is what it listens on.
	Channel() string
	// Key is a key in the slot of the channel.
	Key() string
	// Confirmed is called when the subscription stands; n is the number of channels of the connection. The call may come
	// late: [Listener.Subscribed] reports the present state.
	Confirmed(from Listener, n int)
	// Unheard is called when the subscription is gone. The listener subscribes again; if the slot has left its node,
	// Rehome follows.
	Unheard(from Listener)
	// Rehome is called when the node of the listener no longer has the slot.
	Rehome(from Listener)
	// Refused is called with an error of the server that no retry mends.
	Refused(err error)
	// Message is called with each message.
	Message(text string, received time.Time)
}

// A Listener is where a subscriber subscribes: at one node, as long as its slot is there. All may be called with locks of the
// subscriber held.
type Listener interface {
	// Want subscribes, and keeps subscribed: the subscriber learns of it by Confirmed.
	Want(s Subscriber)
	// Drop ends that, unless another subscriber has taken the channel over.
	Drop(s Subscriber)
	// Subscribed reports whether the subscription stands.
	Subscribed(s Subscriber) bool
	// Reconnect replaces the connection.
	Reconnect()
	// Attend listens on the client's own channel, for one hold more. Leave says that one has ended; the channel stays for
	// a while after the last.
	Attend()
	Leave()
}
