import { Box, Group, Text } from '@mantine/core';

/** The colors of a chart. */
export function Legend({ parts }: { parts: { name: string; color: string }[] }) {
  return (
    <Group gap="md">
      {parts.map(({ name, color }) => (
        <Group key={name} gap={6}>
          <Box w={10} h={10} bg={color} bdrs={5} />
          <Text size="sm">{name}</Text>
        </Group>
      ))}
    </Group>
  );
}
