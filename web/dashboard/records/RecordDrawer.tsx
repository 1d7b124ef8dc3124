import { Alert, Badge, Button, Drawer, Group, Stack, Table, Text, Title } from '@mantine/core';
import { IconDatabaseOff, IconScissors } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { Copyable } from '../../ui/Copyable.tsx';
import { JsonBlock } from '../../ui/JsonBlock.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { ChangedFields } from './ChangedFields.tsx';
import { type BrowsedRecord, type DatasetAt, recordQuery } from './queries.ts';
import { ActionBadge } from './RecordsTable.tsx';

/** One record in full, beside the page it was chosen from. */
export function RecordDrawer({
  environment,
  at,
  id,
  known,
  onPrune,
  onClose,
}: {
  environment: string;
  at: DatasetAt;
  id: string | undefined;
  /** As the page beside has it, to be shown at once. */
  known: BrowsedRecord | undefined;
  onPrune: ((until: BrowsedRecord) => void) | undefined;
  onClose: () => void;
}) {
  const query = useQuery({
    ...recordQuery(environment, { at, record: id ?? '' }),
    enabled: id !== undefined,
    placeholderData: () => known,
  });
  return (
    <Drawer opened={id !== undefined} onClose={onClose} title="Record">
      <Loaded query={query}>
        {(record) =>
          record === null ? (
            <Text c="dimmed">There is no record with this ID.</Text>
          ) : (
            <Whole record={record} isWhole={!query.isPlaceholderData} onPrune={onPrune} />
          )
        }
      </Loaded>
    </Drawer>
  );
}

function Whole({
  record,
  isWhole,
  onPrune,
}: {
  record: BrowsedRecord;
  /** Whether it is known yet what its last change changed. */
  isWhole: boolean;
  onPrune: ((until: BrowsedRecord) => void) | undefined;
}) {
  return (
    <Stack>
      <Group gap="xs">
        <Title order={3} className="wrap">
          {record.id}
        </Title>
        <ActionBadge action={record.action} />
        {record.prunedAt !== null && <Badge color="yellow">pruned</Badge>}
      </Group>
      <Table layout="fixed">
        <Table.Tbody>
          <Fact name="First seen">
            <RelativeTime at={record.firstSeenAt} />
          </Fact>
          <Fact name="Last changed">
            <RelativeTime at={record.lastModifiedAt} />
          </Fact>
          {record.deletedAt !== null && (
            <Fact name="Deleted">
              <RelativeTime at={record.deletedAt} />
            </Fact>
          )}
          {record.prunedAt !== null && (
            <Fact name="Pruned">
              <RelativeTime at={record.prunedAt} />
            </Fact>
          )}
          <Fact name="Cursor">
            <Copyable value={record.cursor} what="the cursor" />
          </Fact>
        </Table.Tbody>
      </Table>
      {isWhole && record.action === 'UPDATED' && record.prunedAt === null && (
        <ChangedFields record={record} />
      )}
      <Stack gap="xs">
        <Title order={3}>Payload</Title>
        {record.fields === undefined ? (
          <Alert color="yellow" icon={<IconDatabaseOff size={18} />} title="Pruned">
            The payload was removed. Save the record again to restore it.
          </Alert>
        ) : (
          <JsonBlock value={{ id: record.id, ...record.fields }} what="the record" />
        )}
      </Stack>
      {onPrune !== undefined && (
        <Button
          variant="default"
          leftSection={<IconScissors size={16} />}
          onClick={() => onPrune(record)}
          w="fit-content"
        >
          Prune up to this record
        </Button>
      )}
    </Stack>
  );
}

function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <Table.Tr>
      <Table.Th w={130} fw={400} c="dimmed">
        {name}
      </Table.Th>
      <Table.Td className="wrap">{children}</Table.Td>
    </Table.Tr>
  );
}
