//! One binary for all tests that run the real program against a real PostgreSQL.
//!
//! What they promise is checked from outside: by the events that a subscriber reads and by `SELECT`, never by
//! the program's own decoder.

#[cfg(test)]
mod lab;
#[cfg(test)]
mod lab_itself;
#[cfg(test)]
mod delivery;
#[cfg(test)]
mod publication;
#[cfg(test)]
mod rebuild;
#[cfg(test)]
mod shapes;
#[cfg(test)]
mod front_door;
#[cfg(test)]
mod schemas;
#[cfg(test)]
mod transactions;
#[cfg(test)]
mod policy;
#[cfg(test)]
mod loss;
#[cfg(test)]
mod lost_again;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod restored;
#[cfg(test)]
mod standby;
#[cfg(test)]
mod foreign;
#[cfg(test)]
mod tls;
#[cfg(test)]
mod under_load;
#[cfg(test)]
mod values;
#[cfg(test)]
mod kafka;
