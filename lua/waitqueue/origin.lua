-- waitqueue/origin: which master the server is. Where two connections to one address find two, each grants the same locks. It
-- changes nothing.
--
-- KEYS  lock  hash  a name that nobody uses
-- ARGV  none
-- REPLY its replication id and the one before, with a blank between; empty where the server does not say that it is a master
-- RETRY safe: it only reads

-- @include lib/origin.lua
return origin.of()
