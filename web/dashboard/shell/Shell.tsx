import { ActionIcon, AppShell, Box, Burger, Button, Group, Kbd, Text, Tooltip } from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { spotlight } from '@mantine/spotlight';
import { IconSearch } from '@tabler/icons-react';
import { Link, Outlet, useRouterState } from '@tanstack/react-router';
import { useEffect, useRef } from 'react';
import { Commands } from './Commands.tsx';
import { EnvironmentSwitch } from './EnvironmentSwitch.tsx';
import { rememberEnvironment, useEnvironment } from './environment.ts';
import { commandKey } from './keys.ts';
import { Navigation } from './Navigation.tsx';
import { Shortcuts } from './Shortcuts.tsx';
import { UserMenu } from './UserMenu.tsx';

/** What surrounds every page of a signed-in user: where to go, as whom, in which environment. */
export function Shell() {
  const environment = useEnvironment();
  const [isOpen, { toggle, close }] = useDisclosure();
  const [areShortcutsShown, shortcuts] = useDisclosure();
  const path = useRouterState({ select: ({ location }) => location.pathname });
  const main = useRef<HTMLElement>(null);
  const formerPath = useRef(path);
  useEffect(() => rememberEnvironment(environment), [environment]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: a new page closes the menu that led to it
  useEffect(close, [path]);
  // The keyboard goes on at the new page, not at the link that led to it; a field that a page has focused itself stays.
  useEffect(() => {
    if (formerPath.current === path) return;
    formerPath.current = path;
    if (!document.activeElement?.matches('main input, main textarea'))
      main.current?.focus({ preventScroll: true });
  }, [path]);
  return (
    <AppShell
      header={{ height: 56 }}
      navbar={{ width: 232, breakpoint: 'sm', collapsed: { mobile: !isOpen } }}
      padding={{ base: 'md', md: 'xl' }}
    >
      <a className="skip" href="#main">
        To the content
      </a>
      <AppShell.Header>
        <Group h="100%" px="md" gap="sm" wrap="nowrap">
          <Burger opened={isOpen} onClick={toggle} hiddenFrom="sm" size="sm" aria-label="Navigation" />
          <Link to="/" aria-label="Trellis, to the start">
            <Mark />
          </Link>
          <Text fw={650} visibleFrom="sm" aria-hidden>
            Trellis
          </Text>
          <Box w={1} h={24} bg="var(--mantine-color-default-border)" visibleFrom="sm" />
          <EnvironmentSwitch />
          <Box flex={1} />
          <Button
            variant="default"
            color="gray"
            visibleFrom="sm"
            size="sm"
            leftSection={<IconSearch size={16} />}
            rightSection={<Kbd size="xs">{commandKey} K</Kbd>}
            onClick={spotlight.open}
          >
            Search
          </Button>
          <Tooltip label="Search">
            <ActionIcon
              hiddenFrom="sm"
              variant="subtle"
              color="gray"
              size="lg"
              onClick={spotlight.open}
              aria-label="Search"
            >
              <IconSearch size={18} />
            </ActionIcon>
          </Tooltip>
          <UserMenu />
        </Group>
      </AppShell.Header>
      <AppShell.Navbar p="sm">
        <Navigation />
      </AppShell.Navbar>
      <AppShell.Main id="main" ref={main} tabIndex={-1}>
        <Outlet />
      </AppShell.Main>
      <Commands onShortcuts={shortcuts.open} />
      <Shortcuts isOpen={areShortcutsShown} onOpen={shortcuts.open} onClose={shortcuts.close} />
    </AppShell>
  );
}

function Mark() {
  return (
    <svg width="28" height="28" viewBox="0 0 32 32" aria-hidden="true" style={{ display: 'block' }}>
      <rect width="32" height="32" rx="8" fill="var(--mantine-primary-color-filled)" />
      <path
        d="M10 7v18M22 7v18M7 12h18M7 20h18"
        stroke="#fff"
        strokeWidth="2.6"
        strokeLinecap="round"
        fill="none"
      />
    </svg>
  );
}
