import { Table, Text } from '@mantine/core';
import { fieldsOf, typeWords } from './schema.ts';

/** The fields of a JSON Schema of an object; of anything else its type in a word. */
export function SchemaTable({ schema }: { schema: Record<string, unknown> }) {
  const fields = fieldsOf(schema);
  if (fields === undefined || fields.length === 0) {
    return <Text size="sm">{fields === undefined ? typeWords(schema) : 'an object of any fields'}</Text>;
  }
  return (
    <Table.ScrollContainer minWidth={260}>
      <Table verticalSpacing={6}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Field</Table.Th>
            <Table.Th>Type</Table.Th>
            <Table.Th visibleFrom="xs">Required</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {fields.map(({ name, schema: of, isRequired }) => (
            <Table.Tr key={name}>
              <Table.Td ff="monospace" fz="sm" className="wrap">
                {name}
              </Table.Td>
              <Table.Td className="wrap">
                {typeWords(of)}
                {typeof of.description === 'string' && (
                  <Text size="xs" c="dimmed">
                    {of.description}
                  </Text>
                )}
              </Table.Td>
              <Table.Td visibleFrom="xs">{isRequired ? 'yes' : 'no'}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}
