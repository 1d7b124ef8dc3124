import { Button } from '@mantine/core';
import { IconMapOff } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { Page } from '../../ui/Page.tsx';

/** For an address that none of the pages has. */
export function NoSuchPage() {
  return (
    <Page title="There is no such page">
      <EmptyState
        icon={<IconMapOff size={26} />}
        title="This address leads nowhere"
        action={<Button renderRoot={(props) => <Link to="/" {...props} />}>To the start</Button>}
      >
        It may be mistyped, or be that of a page which has moved since.
      </EmptyState>
    </Page>
  );
}
