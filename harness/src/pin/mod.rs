//! What names a commit of ours, and how it moves: consumers' files edited on a branch and checked there, forks pushed with a lease and a
//! backup. It decides nothing about which commit is good; that is the gate's answer.

pub mod check;
pub mod drop;
pub mod edit;
pub mod follow;
pub mod material;
pub mod plan;
pub mod proof;
pub mod push;
pub mod update;
