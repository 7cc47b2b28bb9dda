//! Fenced transactions: those of a service's own that commit only in the term of a lease.

use std::{future::Future, time::Duration};

use futures::{AsyncRead, AsyncWrite, TryStreamExt};
use lease_core::{AsTerm, ErrorKind, FenceError, FenceReason, Operation, Term};
use tiberius::{Client, QueryItem, QueryStream, Row, error::Error};
use tokio::time::timeout;

use crate::{
    MssqlLeaseStore,
    error::Failure,
    sql::{self, Statement},
};

impl MssqlLeaseStore {
    /// Verifies on the caller's own open transaction that `lease` is held, and keeps it so: until the transaction ends, nobody else is
    /// granted the lease.
    ///
    /// The holder's renewals go on meanwhile. **Nothing on the server bounds this**: a client that goes silent in a verified transaction
    /// keeps the lease until its connection is gone. Prefer [`commit`](Self::commit), which keeps the lease for one round trip only.
    ///
    /// Verify in the outermost transaction: rolling back to a savepoint from before gives the lease up. The transaction must be in the
    /// table's database, may have any isolation level, and its user needs SELECT on the table.
    ///
    /// # Errors
    ///
    /// [`FenceError::Fenced`]: the term is over, or has run out; roll back. [`ErrorKind::RestartTransaction`]: there is no open
    /// transaction, or it cannot be committed, or the lease is just being taken; roll back and begin again. After any error the
    /// transaction must not be committed.
    ///
    /// # Cancel safety
    ///
    /// After a dropped future, and after a timeout, the answer is still on its way: close the connection, which rolls back.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use lease_mssql::{MssqlLeaseStore, lease_core::{FenceError, HeldLease}, tiberius::Client};
    ///
    /// # async fn example<S: futures::AsyncRead + futures::AsyncWrite + Unpin + Send>(
    /// #     store: &MssqlLeaseStore, client: &mut Client<S>, lease: &HeldLease,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// client.simple_query("BEGIN TRANSACTION").await?.into_results().await?;
    /// client.execute("INSERT INTO ledger (entry) VALUES (@P1)", &[&"paid"]).await?;
    /// match store.commit(client, lease).await {
    ///     Ok(()) => println!("paid, once"),
    ///     Err(FenceError::Fenced(reason)) => println!("another instance pays: {reason}"),
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn verify<S>(&self, client: &mut Client<S>, lease: &impl AsTerm) -> Result<(), FenceError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let Some(term) = lease.as_term() else {
            return Ok(());
        };
        let verified = within(self.operation_timeout, ErrorKind::Unavailable, async {
            if !ask(client, &self.sql.verify, term).await?.is_empty() {
                return Ok(None);
            }
            self.reason(client, term).await.map(Some)
        });
        match verified.await {
            Ok(None) => Ok(()),
            Ok(Some(reason)) => Err(FenceError::Fenced(reason)),
            Err(failure) => Err(failure.in_a_transaction().into_error(Operation::Verify).into()),
        }
    }

    /// Verifies that `lease` is held and commits the open transaction in that term, in one round trip. It must be the outermost one, and
    /// may have been begun by a statement or by the driver.
    ///
    /// # Errors
    ///
    /// As for [`verify`](Self::verify), and then the transaction is rolled back. [`ErrorKind::Indeterminate`]: the answer to the commit
    /// never came. If it was made, it was made in the term.
    ///
    /// # Cancel safety
    ///
    /// A dropped future leaves the transaction committed or open; close the connection, which rolls an open one back.
    pub async fn commit<S>(&self, client: &mut Client<S>, lease: &impl AsTerm) -> Result<(), FenceError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let committed = within(self.operation_timeout, ErrorKind::Indeterminate, async {
            let Some(term) = lease.as_term() else {
                return run(client, &self.sql.commit_unfenced.text).await.map(|_| None);
            };
            if !run(client, &self.sql.commit_batch(term)).await?.is_empty() {
                return Ok(None);
            }
            self.reason(client, term).await.map(Some)
        });
        let error = match committed.await {
            Ok(None) => return Ok(()),
            Ok(Some(reason)) => FenceError::Fenced(reason),
            Err(failure) if failure.kind() == ErrorKind::Indeterminate => {
                return Err(failure.into_error(Operation::Commit).into());
            }
            Err(failure) => failure.in_a_transaction().into_error(Operation::Commit).into(),
        };
        // Whatever was refused is not committed. When this fails too, the connection is gone, and its transaction with it.
        drop(timeout(self.operation_timeout, run(client, &self.sql.rollback.text)).await);
        Err(error)
    }

    /// The batch that [`verify`](Self::verify) sends for `lease`, for users of another driver. It has no parameters.
    ///
    /// Execute it last in the transaction. One row: commit. No row, or an error: roll back.
    pub fn verify_sql(&self, lease: &impl AsTerm) -> String {
        let unfenced = || self.sql.verify_unfenced.text.to_string();
        lease.as_term().map_or_else(unfenced, |term| self.sql.verify_batch(term))
    }

    /// Why the term is over.
    async fn reason<S>(&self, client: &mut Client<S>, term: &Term) -> Result<FenceReason, Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let rows = ask(client, &self.sql.fenced, term).await?;
        Ok(sql::fence_reason(&rows, term)?)
    }
}

/// What a statement says of a term.
async fn ask<S>(client: &mut Client<S>, statement: &Statement, term: &Term) -> Result<Vec<Row>, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let (name, owner, token, resource) =
        (term.name.as_str(), term.owner.as_str(), term.token.value(), sql::resource(&term.name));
    let rows = client.query(statement.text.as_ref(), &[&name, &owner, &token, &resource]).await?;
    Ok(answer(rows).await?)
}

/// What a plain batch answers, which may have committed.
async fn run<S>(client: &mut Client<S>, batch: &str) -> Result<Vec<Row>, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let running = async { answer(client.simple_query(batch).await?).await };
    running.await.map_err(|error| Failure::from(error).at_answer())
}

/// Reads an answer to its end, so that an error in it is not missed, nor left to the next statement.
async fn answer(mut stream: QueryStream<'_>) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    while let Some(item) = stream.try_next().await? {
        if let QueryItem::Row(row) = item {
            rows.push(row);
        }
    }
    Ok(rows)
}

/// Bounds what a server may never answer.
async fn within<T>(
    limit: Duration,
    otherwise: ErrorKind,
    call: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let silent = || Failure::new(otherwise, "the server did not answer within the operation timeout");
    timeout(limit, call).await.unwrap_or_else(|_| Err(silent()))
}
