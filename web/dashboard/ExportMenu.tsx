import { Button, Menu, Text } from '@mantine/core';
import { notifications } from '@mantine/notifications';
import { useMutation } from '@tanstack/react-query';
import type { ExportFormat } from '../api/client.ts';
import { IconDownload } from '../ui/icons.tsx';

const formats: { format: ExportFormat; label: string; about: string }[] = [
  { format: 'csv', label: 'CSV', about: 'For spreadsheets' },
  { format: 'ndjson', label: 'NDJSON', about: 'One JSON document per line' },
];

/** Downloads all entries of a list that match its filters, as a file with this name. */
export function ExportMenu({
  name,
  start,
}: {
  name: string;
  start: (format: ExportFormat) => Promise<Blob>;
}) {
  const write = useMutation({
    mutationFn: start,
    meta: { isShown: true },
    onSuccess: (file, format) => {
      const link = document.createElement('a');
      link.href = URL.createObjectURL(file);
      link.download = `${name}.${format}`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
      notifications.show({ message: `${link.download} was downloaded.`, color: 'green' });
    },
    onError: ({ message }) => notifications.show({ title: 'Not exported', message, color: 'red' }),
  });
  return (
    <Menu position="bottom-end" width={220}>
      <Menu.Target>
        <Button variant="default" leftSection={<IconDownload size={16} />} loading={write.isPending}>
          Export
        </Button>
      </Menu.Target>
      <Menu.Dropdown>
        {formats.map(({ format, label, about }) => (
          <Menu.Item key={format} onClick={() => write.mutate(format)}>
            {label}
            <Text size="xs" c="dimmed">
              {about}
            </Text>
          </Menu.Item>
        ))}
      </Menu.Dropdown>
    </Menu>
  );
}
