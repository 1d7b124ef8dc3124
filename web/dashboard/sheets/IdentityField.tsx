import { Alert, Radio, Select, Stack } from '@mantine/core';
import type { Preview, PreviewColumn } from './queries.ts';
import type { Identity } from './settings.ts';

export type Told = { identity: Identity; keyColumn: string | undefined };

const words: Record<Identity, { label: string; description: string }> = {
  key: {
    label: 'By a key column',
    description: 'The record of a row has the ID in that column: other systems know it, too.',
  },
  metadata: {
    label: 'By a mark on each row',
    description:
      'The service puts an invisible mark on each row, which moves with it: a row stays itself, whatever becomes of its cells.',
  },
  content: {
    label: 'By what the rows hold',
    description:
      'Nothing is written to the sheet: a row that is moved or sorted is known by its cells, a changed one by its neighbours.',
  },
};

/** How a row is known again. */
export function IdentityField({
  told: { identity, keyColumn },
  offered,
  columns,
  keys,
  onChange,
}: {
  told: Told;
  /** What the rights of the connection allow. */
  offered: readonly Identity[];
  columns: readonly PreviewColumn[];
  keys: Preview['keys'];
  onChange: (told: Told) => void;
}) {
  return (
    <Stack gap="sm">
      <Radio.Group
        label="How rows are told apart"
        description="A row that is known again keeps its record, so that only what has really changed is told as a change."
        value={identity}
        onChange={(next) => {
          const chosen = next as Identity;
          onChange({ identity: chosen, keyColumn: keyColumn ?? columns[0]?.field });
        }}
      >
        <Stack gap="xs" mt="xs">
          {offered.map((one) => (
            <Radio key={one} value={one} {...words[one]} />
          ))}
        </Stack>
      </Radio.Group>
      {identity === 'key' && (
        <Select
          label="Key column"
          data={columns.map(({ field }) => field)}
          value={keyColumn ?? null}
          onChange={(next) => next !== null && onChange({ identity, keyColumn: next })}
          allowDeselect={false}
          searchable
          nothingFoundMessage="No such column"
          error={
            keyColumn !== undefined &&
            !columns.some(({ field }) => field === keyColumn) &&
            `No column is called ${keyColumn} at the moment`
          }
          maw={360}
        />
      )}
      {identity === 'key' && keys !== null && keys.column === keyColumn && <KeyWarning keys={keys} />}
    </Stack>
  );
}

function KeyWarning({ keys: { empty, duplicates, examples } }: { keys: NonNullable<Preview['keys']> }) {
  if (empty + duplicates === 0) return null;
  const named = examples.join(', ') + (duplicates > examples.length ? ', …' : '');
  return (
    <Alert color="yellow" role="status" title="Not every row has a key of its own">
      {duplicates > 0 &&
        `${duplicates === 1 ? 'One key stands' : `${duplicates.toLocaleString()} keys stand`} in more than one row: ${named}. The first row keeps the key, the others are told as key~2, key~3. `}
      {empty > 0 &&
        `${empty === 1 ? 'One row has' : `${empty.toLocaleString()} rows have`} none, and ${empty === 1 ? 'is' : 'are'} told apart by what ${empty === 1 ? 'it holds' : 'they hold'}.`}
    </Alert>
  );
}
