// The model of all operations, with the 10,000 operations that are too many for every run.
process.env.LONG = '1';
await import('../../server/records/model.test.ts');
