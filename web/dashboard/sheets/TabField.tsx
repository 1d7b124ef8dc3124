import { Select, Text } from '@mantine/core';
import type { Tab } from './queries.ts';

/** Which tab; those without cells, such as charts, cannot be chosen. */
export function TabField({
  tabs,
  chosen,
  onChoose,
}: {
  tabs: readonly Tab[];
  chosen: number | null;
  onChoose: (sheetId: number) => void;
}) {
  const data = tabs.map(({ sheetId, title, kind, hidden }) => ({
    value: String(sheetId),
    label: hidden ? `${title} (hidden)` : title,
    disabled: kind === 'object',
  }));
  const tab = tabs.find(({ sheetId }) => sheetId === chosen);
  return (
    <>
      <Select
        label="Tab"
        data={data}
        value={tab === undefined ? null : String(tab.sheetId)}
        placeholder="Choose one"
        onChange={(next) => next !== null && onChoose(Number(next))}
        allowDeselect={false}
        searchable={tabs.length > 8}
        nothingFoundMessage="No such tab"
        maw={420}
      />
      {chosen !== null && tab === undefined && (
        <Text size="sm" c="dimmed">
          The spreadsheet has no such tab any more. Choose another one.
        </Text>
      )}
    </>
  );
}
