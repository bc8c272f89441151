//! The shell: all that touches Redis.

pub mod call;
pub mod reply;
