import { Button } from '@mantine/core';
import { notifications } from '@mantine/notifications';
import { IconDownload } from '@tabler/icons-react';
import { useMutation } from '@tanstack/react-query';
import { counted } from '../../ui/size.ts';
import { type DatasetAt, exportRecords } from './queries.ts';

/** Saves a whole dataset as a file of one JSON document a line. */
export function ExportButton({ environment, at }: { environment: string; at: DatasetAt }) {
  const write = useMutation({
    mutationFn: () => exportRecords(environment, at),
    onSuccess: ({ file, count }) => {
      const link = document.createElement('a');
      link.href = URL.createObjectURL(file);
      link.download = `${at.model}${at.variant === 'base' ? '' : `-${at.variant}`}.ndjson`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
      notifications.show({ message: `${counted(count, 'record')} exported.`, color: 'green' });
    },
    onError: ({ message }) => notifications.show({ title: 'Not exported', message, color: 'red' }),
  });
  return (
    <Button
      variant="default"
      leftSection={<IconDownload size={16} />}
      loading={write.isPending}
      onClick={() => write.mutate()}
    >
      Export
    </Button>
  );
}
