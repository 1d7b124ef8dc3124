import { Badge, Code, Group, Stack, Table, Text, Title } from '@mantine/core';
import type { BrowsedRecord } from './queries.ts';

/** A value that is longer is cut here; the payload below has it whole. */
const maxLength = 300;

/** What the last change changed: the names of the fields, and what stood there where it was kept. */
export function ChangedFields({ record: { changes, fields = {} } }: { record: BrowsedRecord }) {
  return (
    <Stack gap="xs">
      <Title order={3}>What the last change changed</Title>
      {changes === null ? (
        <Text size="sm" c="dimmed">
          Not known. Where the dataset keeps previous payloads (see its settings), the next change is shown
          here, with the value before and after.
        </Text>
      ) : changes.previous === null ? (
        <Group gap={4}>
          {changes.fields.map((name) => (
            <Badge key={name} color="gray">
              {name}
            </Badge>
          ))}
        </Group>
      ) : (
        <Table.ScrollContainer minWidth={340} className="framed">
          <Table layout="fixed">
            <Table.Thead>
              <Table.Tr>
                <Table.Th w="26%">Field</Table.Th>
                <Table.Th>Before</Table.Th>
                <Table.Th>Now</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {changes.fields.map((name) => (
                <Table.Tr key={name}>
                  <Table.Td className="wrap">{name}</Table.Td>
                  <Table.Td>
                    <Value of={changes.previous} name={name} color="var(--mantine-color-red-light)" />
                  </Table.Td>
                  <Table.Td>
                    <Value of={fields} name={name} color="var(--mantine-color-green-light)" />
                  </Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Table.ScrollContainer>
      )}
    </Stack>
  );
}

function Value({ of, name, color }: { of: Record<string, unknown> | null; name: string; color: string }) {
  if (of === null || !Object.hasOwn(of, name)) {
    return (
      <Text size="sm" c="dimmed">
        absent
      </Text>
    );
  }
  const text = JSON.stringify(of[name]);
  return (
    <Code bg={color} className="wrap">
      {text.length > maxLength ? `${text.slice(0, maxLength)}…` : text}
    </Code>
  );
}
