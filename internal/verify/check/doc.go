// Package check judges what clients saw and what a server did: were holds exclusive, did tokens rise, was the
// order kept, was every loss a true one.
//
// There are three kinds of evidence, each blind where another sees:
//
//	holds    what callers saw of each hold, by one clock: package judge takes any number of them, in linear time
//	         or nearly. An over-grant that is shorter than the way of a message is legal to it.
//	history  the same as operations: [Linearizable] looks for an order in which a [Model] could have done
//	         them. It is exact about what an unanswered request may have done, and finds what is wrong with
//	         answers, not only with intervals. It takes small histories.
//	truth    the commands that scripts ran at the server: [Truth] replays them. It sees grants that nobody
//	         was told of, and the order of arrival; it does not see what callers made of it.
//
// A [Recorder] makes holds and a history of the calls that go through it; [Follow] feeds a Truth.
//
// # Time
//
// All times are spans since the recorder was made, of one process.
//
// # What is unknown
//
// A call that was given up, or got no answer, may have had its effect or not, at any time since. Its operation
// has no return, and the models go on with both. Where the checker cannot decide in its time the test fails:
// what nobody could judge is no evidence.
package check
