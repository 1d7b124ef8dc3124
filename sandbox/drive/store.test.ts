import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { createFileStore, type DriveFile } from './store.ts';

test('the quota limits files and bytes, and a removed file frees its share', async (t) => {
  const dataDir = await mkdtemp(join(tmpdir(), 'drive-'));
  t.after(() => rm(dataDir, { recursive: true }));
  const store = createFileStore(dataDir, { files: 2, bytes: 10 });
  const put = async (id: string, bytes: string) => {
    const path = await store.newPart(id);
    await writeFile(path, bytes);
    await store.putContent({ ...file, id }, path);
  };
  await put('a', '12345678');
  await assert.rejects(put('b', '123'), { code: 403 });
  await put('b', '12');
  await assert.rejects(put('c', ''), { code: 403 });
  await store.remove('a');
  await put('b', '1234567890');
  assert.deepEqual(
    (await store.list()).map(({ id, content }) => [id, content?.sizeBytes]),
    [['b', 10]],
  );
  assert.equal((await store.read('b', { start: 3, end: 5 })).toString(), '456');
});

const file: DriveFile = {
  id: '',
  name: 'x',
  mimeType: 'text/plain',
  starred: false,
  trashed: false,
  parents: [],
  createdAt: 0,
  modifiedAt: 0,
  version: 1,
  owner: { email: 'ann@example.com', sub: '1' },
};
