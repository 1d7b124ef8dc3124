import { Button, Group, Text } from '@mantine/core';

/** The end of a form: undo and save once something was changed; for who may not, what to know instead. */
export function SaveBar({
  isDirty,
  isSaving,
  onUndo,
  isAllowed,
  otherwise,
}: {
  isDirty: boolean;
  isSaving: boolean;
  onUndo: () => void;
  isAllowed: boolean;
  otherwise: string;
}) {
  if (!isAllowed) {
    return (
      <Text size="sm" c="dimmed">
        {otherwise}
      </Text>
    );
  }
  return (
    <Group justify="flex-end">
      <Button variant="default" disabled={!isDirty} onClick={onUndo}>
        Undo
      </Button>
      <Button type="submit" loading={isSaving} disabled={!isDirty}>
        Save
      </Button>
    </Group>
  );
}
