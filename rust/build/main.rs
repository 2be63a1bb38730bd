//! Nothing yet.
fn main(){}
