import { Button, Group } from '@mantine/core';
import { Dimmed } from './Dimmed.tsx';
import { useUnsaved } from './unsaved.ts';

/** The buttons of a form, enabled after a change, which is not lost unasked; without permission, a text. */
export function SaveBar({
  isDirty,
  isSaving,
  onUndo,
  isAllowed = true,
  otherwise,
}: {
  isDirty: boolean;
  isSaving: boolean;
  onUndo: () => void;
  isAllowed?: boolean;
  otherwise?: string;
}) {
  useUnsaved(isDirty);
  if (!isAllowed) {
    return <Dimmed>{otherwise}</Dimmed>;
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
