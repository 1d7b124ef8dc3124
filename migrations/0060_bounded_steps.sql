-- Jobs and delete tracking work in steps of bounded length.
-- runs with: 0033

-- If later than the acknowledgement, the time from which the silence of a consumer counts. The job that reports stale
-- consumers sets it, so that it looks at the consumers of quiet datasets every day or two.
alter table consumer add column silent_from timestamptz;

-- To compress an array of 20,000 positions takes three times as long as to write it, under the dataset's lock.
alter table tracked alter column seqs set storage external;
