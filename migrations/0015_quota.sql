-- What all nodes have taken of a provider's quotas. Of nobody's environment: a provider counts the calls of a client or a
-- project, wherever the client is used.
create table quota_book (
  -- Service, owner, account where it is one account's, name and window of the limit.
  bucket text not null,
  -- {closedUntil, cells: [[number, interactive, background], ...]}; see server/proxy/quota/book.ts.
  pages jsonb not null,
  -- Another one after each write: what was worked out from one version is written over no other.
  version uuid not null,
  written_at timestamptz not null default now(),
  constraint quota_book_pkey primary key (bucket)
);
create index quota_book_written on quota_book (written_at);
