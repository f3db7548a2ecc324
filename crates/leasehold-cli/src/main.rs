//! Leasehold on the command line.

fn main() {}
